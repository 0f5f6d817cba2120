-- A note that is lost in a crash is sent again, so it need not wait for the disk.
WITH free AS MATERIALIZED (
    SELECT id FROM {jobs} WHERE id = ANY(:ids::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED
), noted AS (
    UPDATE {jobs} AS j SET progress = g.progress
    FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :progress::text[])) AS g (id, token, progress)
    WHERE j.id = g.id AND j.token = g.token AND j.id IN (SELECT id FROM free)
    RETURNING j.id
)
SELECT set_config('synchronous_commit', 'off', true) FROM noted LIMIT 1
