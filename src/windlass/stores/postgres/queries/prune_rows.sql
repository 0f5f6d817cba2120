-- Jobs that are kept for less than a day or for longer than the ring are deleted by row, through a partial index.
WITH gone AS (
    DELETE FROM {history} WHERE (id, slot) IN (
        SELECT id, slot FROM {history}
        WHERE purge_at <= {now} AND (keep_seconds < 86400 OR slot = 32) LIMIT :limit::integer)
    RETURNING slot, queue, type, state
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, state, -count(*) FROM gone GROUP BY 1, 2, 3, 4
)
SELECT count(*) FROM gone
