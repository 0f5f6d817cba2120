UPDATE {jobs} AS j SET linked = 1
WHERE id {in_ids} AND EXISTS (SELECT 1 FROM {edges} AS e WHERE e.chain_id = j.chain_id AND NOT e.done)
