-- A mark whose answer was lost is found without a second write: a write waits for its commit.
WITH free AS MATERIALIZED (
    SELECT id FROM {jobs} WHERE id = ANY(:ids::uuid[]) AND NOT begun ORDER BY id FOR UPDATE SKIP LOCKED
), marked AS (
    UPDATE {jobs} AS j SET begun = true
    FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[])) AS g (id, token)
    WHERE j.id = g.id AND j.token = g.token AND j.id IN (SELECT id FROM free)
    RETURNING j.id
)
SELECT id FROM marked
UNION ALL
SELECT j.id FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[])) AS g (id, token)
JOIN {jobs} AS j ON j.id = g.id AND j.token = g.token
WHERE j.begun IS NOT false AND j.state = 'running'
