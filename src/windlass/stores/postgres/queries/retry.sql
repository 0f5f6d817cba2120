WITH gone AS (
    DELETE FROM {history} WHERE id = ANY(:ids::uuid[]) AND state IN ('failed', 'cancelled') RETURNING *
), back AS (
    INSERT INTO {jobs} ({retried_columns})
    SELECT {retried_values}
    FROM gone ORDER BY id
    ON CONFLICT DO NOTHING
    RETURNING id, queue
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, state, -count(*) FROM gone GROUP BY 1, 2, 3, 4
)
SELECT gone.id, gone.queue, gone.state::text, back.id IS NOT NULL FROM gone LEFT JOIN back USING (id)
