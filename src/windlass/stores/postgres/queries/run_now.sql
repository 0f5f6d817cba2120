UPDATE {jobs} SET run_at = least(run_at, {now}) WHERE id = ANY(:ids::uuid[]) AND token IS NULL RETURNING id, queue, state::text
