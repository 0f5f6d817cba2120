SELECT id, chain_id, state, queue, token IS NOT NULL, lane, tenant, order_key FROM {jobs}
WHERE id {in_ids} OR (chain_id {in_ids} AND chain_index > 0)
ORDER BY id
