SELECT DISTINCT chain_id FROM {edges} WHERE job_id {in_ids} AND NOT done
