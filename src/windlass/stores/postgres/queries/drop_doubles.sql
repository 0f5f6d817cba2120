-- In a separate statement: an INSERT that looks first can still add a second job in a race with the settlement.
DELETE FROM {jobs} AS j USING {history} AS h
WHERE j.id = ANY(:ids::uuid[]) AND h.id = j.id AND h.id = ANY(:ids::uuid[])
RETURNING j.id
