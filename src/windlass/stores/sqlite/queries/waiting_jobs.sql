SELECT e.chain_id, j.id, j.chain_id, j.type FROM {edges} AS e JOIN {jobs} AS j ON j.id = e.job_id
WHERE e.chain_id {in_ids} AND NOT e.done
ORDER BY j.id
