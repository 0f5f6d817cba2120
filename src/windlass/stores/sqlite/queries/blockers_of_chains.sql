SELECT DISTINCT m.chain_id, e.chain_id FROM (
    SELECT id, chain_id FROM {jobs} WHERE id {in_ids} OR (chain_id {in_ids} AND chain_index > 0)
    UNION ALL
    SELECT id, chain_id FROM {history} WHERE id {in_ids} OR (chain_id {in_ids} AND chain_index > 0)
) AS m
CROSS JOIN {edges} AS e WHERE e.job_id = m.id
