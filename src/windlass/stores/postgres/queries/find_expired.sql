-- A job that is being settled at this moment is locked, and is skipped.
SELECT {live_columns}, {alias}begun FROM {jobs} AS j
WHERE state = 'running' AND CASE
    WHEN :stale_before::timestamptz IS NULL THEN leased_until <= {now}
    ELSE heard_at < :stale_before::timestamptz END
ORDER BY id
LIMIT :limit::integer
FOR UPDATE SKIP LOCKED
