SELECT DISTINCT e.chain_id FROM {edges} AS e JOIN {jobs} AS j ON j.id = e.job_id
WHERE NOT e.done AND (j.id {in_ids} OR (j.chain_id {in_ids} AND j.chain_index > 0))
