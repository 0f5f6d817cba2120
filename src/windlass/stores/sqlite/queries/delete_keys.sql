DELETE FROM {keys} WHERE job_id IN (SELECT value FROM json_each(:ids))
