SELECT j.id, e.chain_id, j.chain_id, j.type, j.if_failed FROM {edges} AS e JOIN {jobs} AS j ON j.id = e.job_id
WHERE e.chain_id IN (SELECT value FROM json_each(:chains)) AND NOT e.done AND j.if_failed IS NOT NULL AND j.state = 'blocked'
    AND j.blockers_left IS NOT NULL
ORDER BY j.id
