-- The jobs of this list that wait for one of these chains.
SELECT DISTINCT job_id FROM {edges}
WHERE job_id {in_ids} AND chain_id IN (SELECT value FROM json_each(:chains)) AND NOT done
