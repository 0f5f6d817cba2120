DELETE FROM {history} WHERE id {in_ids} OR (chain_id {in_ids} AND chain_index > 0)
RETURNING id, queue, state, type
