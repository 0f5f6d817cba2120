UPDATE {jobs} AS j SET
    blockers_left = (SELECT count(*) FROM {edges} AS e WHERE e.job_id = j.id AND NOT e.done),
    state = iif(EXISTS (SELECT 1 FROM {edges} AS e WHERE e.job_id = j.id AND NOT e.done), state, 'pending'),
    run_at = iif(EXISTS (SELECT 1 FROM {edges} AS e WHERE e.job_id = j.id AND NOT e.done), run_at, max(run_at, {now}))
WHERE id {in_ids} AND state = 'blocked'
RETURNING id, queue, state
