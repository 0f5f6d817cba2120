UPDATE {jobs} SET heard_at = {now}, leased_until = {now} + make_interval(secs => lease_seconds)
WHERE state = 'running' AND token = ANY(:tokens::uuid[])
RETURNING id
