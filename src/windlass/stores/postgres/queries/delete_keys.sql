DELETE FROM {keys} WHERE job_id = ANY(:ids::uuid[])
