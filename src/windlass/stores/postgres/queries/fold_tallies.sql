-- One process folds at a time; all others only insert. Not while a slot is being emptied: its deleted counts would be
-- written again.
WITH free AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock({lock_space}, 513) AS ours
), gone AS (
    DELETE FROM {tallies} WHERE (SELECT ours FROM free)
        AND ctid = ANY(ARRAY(SELECT ctid FROM {tallies} LIMIT 100000 FOR UPDATE SKIP LOCKED))
    RETURNING *
)
INSERT INTO {tallies} (slot, queue, type, state, count)
SELECT slot, queue, type, state, sum(count) FROM gone GROUP BY 1, 2, 3, 4 HAVING sum(count) <> 0
