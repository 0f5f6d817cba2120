SELECT job_id, chain_id, done, output, failed, trace FROM {edges} WHERE job_id = ANY(:ids::uuid[]) ORDER BY job_id, position
