SELECT {live_columns} FROM {jobs}
WHERE state = 'running' AND CASE
    WHEN :stale_before IS NULL THEN leased_until < {now}
    ELSE leased_until - CAST(coalesce(lease_seconds, 0) * 1000000 AS integer) < :stale_before END
ORDER BY id
LIMIT :limit
