-- The chains that the jobs of these chains wait, or have waited, for.
SELECT DISTINCT m.chain_id, e.chain_id FROM (
    SELECT id, chain_id FROM {jobs} WHERE id = ANY(:ids::uuid[])
    UNION ALL
    SELECT id, chain_id FROM {jobs} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0
    UNION ALL
    SELECT id, chain_id FROM {history} WHERE id = ANY(:ids::uuid[])
    UNION ALL
    SELECT id, chain_id FROM {history} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0
) AS m
JOIN {edges} AS e ON e.job_id = m.id
