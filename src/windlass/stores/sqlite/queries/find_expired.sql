SELECT {live_columns}, {alias}begun FROM {jobs}
WHERE state = 'running' AND CASE
    WHEN :stale_before IS NULL THEN leased_until <= {now}
    ELSE heard_at < :stale_before END
ORDER BY id
LIMIT :limit
