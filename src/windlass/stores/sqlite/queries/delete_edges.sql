DELETE FROM {edges} WHERE job_id {in_ids}
