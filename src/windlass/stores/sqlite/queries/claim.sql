-- The window takes the rows in the order of the innermost SELECT.
UPDATE {jobs} AS j SET
    state = 'running',
    attempt = attempt + 1,
    token = :token,
    worker = :worker,
    claimed_at = {now},
    heard_at = {now},
    leased_until = {now} + CAST(1000000 * coalesce(:lease_seconds, lease_seconds, {policy} '$.lease_seconds')) AS integer),
    lease_seconds = coalesce(lease_seconds, {policy} '$.lease_seconds')),
    max_attempts = coalesce(max_attempts, {policy} '$.max_attempts')),
    keep_seconds = iif(keep_seconds IS NULL AND {is_unresolved}, {policy} '$.keep_seconds'), keep_seconds),
    policy = CASE
        WHEN policy IS NULL THEN iif(lease_seconds IS NULL, {policy} '$.details'), NULL)
        WHEN {is_partial} THEN json_remove(json_patch(
            json_remove(coalesce({policy} '$.details'), '{}'), iif(json_type(policy, '$.backoff') IS NULL, '$.none', '$.backoff')),
            policy), '$.partial')
        ELSE policy END,
    unique_held = unique_held AND unique_until <> 'claimed',
    begun = {begun}
WHERE rowid IN (
    SELECT row FROM (
        SELECT row, bytes, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT rowid AS row, length(CAST(input AS blob)) AS bytes,
                {is_last_next} AS last
            FROM {jobs} AS j
            WHERE queue = :queue AND state = 'pending' AND (lane IS NULL OR lane = 2) AND run_at <= {now}
                AND (rank, run_at, id) > (:after_rank, :after_run_at, :after_id)
                {of_types}
                AND (expires_at IS NULL OR expires_at > {now})
                AND NOT {is_paused|:queue}
            ORDER BY rank, run_at, id
            LIMIT :limit
        )
        {which}
    )
    WHERE total <= :max_bytes OR total = bytes
)
RETURNING {claimed_columns}
