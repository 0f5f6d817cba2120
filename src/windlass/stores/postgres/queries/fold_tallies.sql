-- Only what nobody else is folding; the table is insert-only otherwise.
WITH gone AS (
    DELETE FROM {tallies} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {tallies} LIMIT 100000 FOR UPDATE SKIP LOCKED))
    RETURNING *
)
INSERT INTO {tallies} (slot, queue, type, state, count)
SELECT slot, queue, type, state, sum(count) FROM gone GROUP BY 1, 2, 3, 4 HAVING sum(count) <> 0
