-- A job that is being claimed or rewritten at this moment is locked, and left alone. Nobody is waited for here, so the
-- locks need not be taken in id order.
SELECT id, expires_at FROM {jobs}
WHERE state <> 'running' AND expires_at <= {now}
ORDER BY expires_at, id
LIMIT :limit::integer
FOR UPDATE SKIP LOCKED
