SELECT DISTINCT ON (j.chain_id) {finished_columns} FROM {history} AS j WHERE j.id IN (
    SELECT unnest(:ids::uuid[])
    UNION ALL
    SELECT id FROM {history} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
AND NOT EXISTS (SELECT FROM {jobs} AS l WHERE l.id = j.chain_id)
AND NOT EXISTS (SELECT FROM {jobs} AS l WHERE l.chain_id = j.chain_id AND l.chain_index > 0)
ORDER BY j.chain_id, j.chain_index DESC
