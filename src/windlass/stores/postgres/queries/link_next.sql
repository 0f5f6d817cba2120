UPDATE {jobs} AS j SET linked = true
WHERE id = ANY(:ids::uuid[]) AND EXISTS (SELECT FROM {edges} AS e WHERE e.chain_id = j.chain_id AND NOT e.done)
