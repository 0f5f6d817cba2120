UPDATE {jobs} SET run_at = min(run_at, {now}) WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'pending' RETURNING id, queue, state
