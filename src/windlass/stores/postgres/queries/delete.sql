WITH members AS (
    SELECT unnest(:ids::uuid[]) AS id
    UNION
    SELECT id FROM {jobs} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0
    UNION
    SELECT id FROM {history} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0
), live AS (
    DELETE FROM {jobs} WHERE id IN (SELECT id FROM members) AND token IS NULL RETURNING id, queue, state
), finished AS (
    DELETE FROM {history} WHERE id IN (SELECT id FROM members) RETURNING id, slot, queue, type, state
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, state, -count(*) FROM finished GROUP BY 1, 2, 3, 4
), freed AS (
    DELETE FROM {keys} WHERE job_id IN (SELECT id FROM live UNION ALL SELECT id FROM finished)
), untied AS (
    DELETE FROM {edges} WHERE job_id IN (SELECT id FROM live UNION ALL SELECT id FROM finished)
)
SELECT id, queue, state::text FROM live UNION ALL SELECT id, queue, state::text FROM finished
