WITH live AS (
    DELETE FROM {jobs} WHERE id = ANY(:ids::uuid[]) AND token IS NULL RETURNING id, queue, state
), finished AS (
    DELETE FROM {history} WHERE id = ANY(:ids::uuid[]) RETURNING id, slot, queue, type, state
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, state, -count(*) FROM finished GROUP BY 1, 2, 3, 4
), freed AS (
    DELETE FROM {keys} WHERE job_id IN (SELECT id FROM live UNION ALL SELECT id FROM finished)
)
SELECT id, queue, state::text FROM live UNION ALL SELECT id, queue, state::text FROM finished
