SELECT job_id, chain_id, done, output, failed, trace FROM {edges} WHERE job_id {in_ids} ORDER BY job_id, position
