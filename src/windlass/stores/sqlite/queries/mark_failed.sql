UPDATE {edges} SET done = 1, failed = 1
WHERE chain_id IN (SELECT value FROM json_each(:chains)) AND NOT done AND job_id {in_ids}
RETURNING job_id
