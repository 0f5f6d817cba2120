DELETE FROM {jobs} WHERE (id {in_ids} OR (chain_id {in_ids} AND chain_index > 0)) AND token IS NULL
RETURNING id, queue, state
