UPDATE {edges} SET done = true, failed = true
WHERE chain_id = ANY(:chains::uuid[]) AND NOT done AND job_id = ANY(:ids::uuid[])
RETURNING job_id
