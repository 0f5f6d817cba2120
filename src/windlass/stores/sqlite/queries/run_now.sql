UPDATE {jobs} SET run_at = min(run_at, {now}) WHERE id IN (SELECT value FROM json_each(:ids)) AND token IS NULL RETURNING id, queue, state
