UPDATE {jobs} SET linked = 1
WHERE id {in_ids} OR (chain_id {in_ids} AND chain_index > 0)
RETURNING chain_id, 1
