-- The jobs that still wait for one of these chains.
SELECT e.chain_id, j.id, j.chain_id, j.type FROM {edges} AS e JOIN {jobs} AS j ON j.id = e.job_id
WHERE e.chain_id = ANY(:ids::uuid[]) AND NOT e.done
ORDER BY j.id
