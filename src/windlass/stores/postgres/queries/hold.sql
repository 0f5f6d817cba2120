UPDATE {jobs} SET heard_at = {now}, leased_until = coalesce({now} + make_interval(secs => lease_seconds), leased_until)
WHERE state = 'running' AND token = ANY(:tokens::uuid[])
RETURNING id
