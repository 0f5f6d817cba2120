SELECT id, expires_at FROM {jobs}
WHERE state <> 'running' AND expires_at <= {now}
ORDER BY expires_at, id
LIMIT :limit
