-- Jobs that wait for one of these chains and have `if_failed`. A job that is not admitted yet is left to its admission,
-- which has locked it and may wait for this transaction.
SELECT j.id, e.chain_id, j.chain_id, j.type, j.if_failed FROM {edges} AS e JOIN {jobs} AS j ON j.id = e.job_id
WHERE e.chain_id = ANY(:chains::uuid[]) AND NOT e.done AND j.if_failed IS NOT NULL AND j.state = 'blocked'
    AND j.blockers_left IS NOT NULL
ORDER BY j.id FOR UPDATE OF j
