-- The jobs of this list that wait for one of these chains.
SELECT DISTINCT job_id FROM {edges}
WHERE job_id = ANY(:ids::uuid[]) AND chain_id = ANY(:chains::uuid[]) AND NOT done
