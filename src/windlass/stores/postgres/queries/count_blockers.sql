-- The number of chains that each job still waits for. With none left, the job is pending.
UPDATE {jobs} AS j SET
    blockers_left = l.left_over,
    state = CASE WHEN l.left_over = 0 THEN 'pending'::{state} ELSE j.state END,
    run_at = CASE WHEN l.left_over = 0 THEN greatest(j.run_at, {now}) ELSE j.run_at END
FROM (
    SELECT id, (SELECT count(*) FROM {edges} WHERE job_id = given.id AND NOT done) AS left_over
    FROM unnest(:ids::uuid[]) AS given (id)
) AS l
WHERE j.id = l.id AND j.state = 'blocked'
RETURNING j.id, j.queue, j.state::text
