DELETE FROM {edges} WHERE job_id IN (SELECT value FROM json_each(:ids));

DELETE FROM {keys} WHERE job_id IN (SELECT value FROM json_each(:ids));

DELETE FROM {jobs} WHERE id IN (SELECT value FROM json_each(:ids))
