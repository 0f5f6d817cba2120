-- In a statement of its own: one that looks before it inserts still doubles in a race with the settlement.
DELETE FROM {jobs} AS j USING {history} AS h
WHERE j.id = ANY(:ids::uuid[]) AND h.id = j.id AND h.id = ANY(:ids::uuid[])
RETURNING j.id
