WITH free AS MATERIALIZED (
    SELECT id FROM {jobs} WHERE id = ANY(:ids::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE {jobs} AS j SET begun = true
FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[])) AS g (id, token)
WHERE j.id = g.id AND j.token = g.token AND j.id IN (SELECT id FROM free)
RETURNING j.id
