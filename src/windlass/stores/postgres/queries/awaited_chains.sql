SELECT DISTINCT chain_id FROM {edges} WHERE job_id = ANY(:ids::uuid[]) AND NOT done
