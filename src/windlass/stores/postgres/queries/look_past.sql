-- The first of the next thousand due jobs whose next attempt is not the last: for a claim that may take no last attempt
-- and has found only such jobs.
SELECT rank, run_at, id FROM (
    SELECT rank, run_at, id,
        {is_last_next} AS last
    FROM {jobs} AS j
    WHERE queue = :queue::text AND state = 'pending' AND (lane IS NULL OR lane = 2) AND run_at <= {now}
        AND (rank, run_at, id) > (:after_rank::smallint, :after_run_at::timestamptz, :after_id::uuid)
        {of_types}
        AND (expires_at IS NULL OR expires_at > {now})
    ORDER BY rank, run_at, id
    LIMIT 1000
) AS due
WHERE NOT coalesce(last, false)
ORDER BY rank, run_at, id
LIMIT 1
