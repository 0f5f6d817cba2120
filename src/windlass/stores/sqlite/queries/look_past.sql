SELECT rank, run_at, id FROM (
    SELECT rank, run_at, id, {is_last_next} AS last
    FROM {jobs} AS j
    WHERE queue = :queue AND state = 'pending' AND (lane IS NULL OR lane = 2) AND run_at <= {now}
        AND (rank, run_at, id) > (:after_rank, :after_run_at, :after_id)
        {of_types}
        AND (expires_at IS NULL OR expires_at > {now})
    ORDER BY rank, run_at, id
    LIMIT 1000
)
WHERE NOT coalesce(last, 0)
ORDER BY rank, run_at, id
LIMIT 1
