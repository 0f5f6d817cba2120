UPDATE {jobs} SET run_at = least(run_at, {now}) WHERE id = ANY(:ids::uuid[]) AND state = 'pending' RETURNING id, queue, state::text
