-- A job that is being claimed or replaced at this moment is locked, and left alone. This statement waits for no lock, so
-- it need not lock in id order.
SELECT id, expires_at FROM {jobs}
WHERE state <> 'running' AND expires_at <= {now}
ORDER BY expires_at, id
LIMIT :limit::integer
FOR UPDATE SKIP LOCKED
