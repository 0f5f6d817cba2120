-- For a slot that was not emptied in its time and already holds rows of the ring's next round.
WITH gone AS (
    DELETE FROM {history} WHERE slot = :slot::smallint AND id IN (
        SELECT id FROM {history} WHERE slot = :slot::smallint AND purge_at <= {now} LIMIT :limit::integer)
    RETURNING slot, queue, type, state
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, state, -count(*) FROM gone GROUP BY 1, 2, 3, 4
)
SELECT count(*) FROM gone
