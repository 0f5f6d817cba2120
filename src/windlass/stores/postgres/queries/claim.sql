-- By ctid and one queue at a time: join forms and several queues re-plan into scans and sorts. The innermost SELECT
-- bounds the scan; what is locked there and not taken (too many bytes, a last attempt that must not wait in a buffer)
-- is let go when the statement ends. Row size is that of the stored value, so nothing is unpacked to be measured.
WITH claimed AS (
    UPDATE {jobs} AS j SET
        state = 'running',
        attempt = j.attempt + 1,
        token = :token::uuid,
        worker = :worker::text,
        claimed_at = {now},
        heard_at = {now},
        leased_until = {now} + make_interval(secs => coalesce(:lease_seconds::float8, j.lease_seconds,
            (coalesce(:policies::jsonb -> j.type, :policies::jsonb -> '') ->> 'lease_seconds')::float8)),
        lease_seconds = coalesce(j.lease_seconds,
            (coalesce(:policies::jsonb -> j.type, :policies::jsonb -> '') ->> 'lease_seconds')::float8),
        max_attempts = coalesce(j.max_attempts,
            (coalesce(:policies::jsonb -> j.type, :policies::jsonb -> '') ->> 'max_attempts')::integer),
        keep_seconds = coalesce(j.keep_seconds,
            (coalesce(:policies::jsonb -> j.type, :policies::jsonb -> '') ->> 'keep_seconds')::integer),
        policy = CASE
            WHEN j.policy IS NULL THEN CASE WHEN j.lease_seconds IS NULL
                THEN coalesce(:policies::jsonb -> j.type, :policies::jsonb -> '') ->> 'details' END
            WHEN starts_with(j.policy, '{partial}') THEN ((coalesce((coalesce(
                :policies::jsonb -> j.type, :policies::jsonb -> '') ->> 'details')::jsonb, '{}')
                || j.policy::jsonb) - 'partial')::text
            ELSE j.policy END,
        unique_held = j.unique_held AND j.unique_until <> 'claimed',
        begun = nullif(:begun::boolean OR coalesce(j.attempt + 1 < nullif(coalesce(j.max_attempts,
            (coalesce(:policies::jsonb -> j.type, :policies::jsonb -> '') ->> 'max_attempts')::integer), 0), true), true)
    WHERE j.ctid = ANY(ARRAY(
        SELECT measured.ctid FROM (
            SELECT due.ctid, due.bytes,
                sum(due.bytes) OVER (ORDER BY due.rank, due.run_at, due.id ROWS UNBOUNDED PRECEDING) AS total
            FROM (
                SELECT ctid, rank, run_at, id, pg_column_size(input) AS bytes,
                    attempt + 1 >= nullif(coalesce(max_attempts,
                        (coalesce(:policies::jsonb -> type, :policies::jsonb -> '') ->> 'max_attempts')::integer), 0) AS last
                FROM {jobs}
                WHERE queue = :queue::text AND state = 'pending' AND (lane IS NULL OR lane = 2) AND run_at <= {now}
                    AND (rank, run_at, id) > (:after_rank::smallint, :after_run_at::timestamptz, :after_id::uuid)
                    {of_types}
                    AND (expires_at IS NULL OR expires_at > {now})
                    AND NOT EXISTS (SELECT FROM {queues} WHERE name = :queue::text AND paused_at IS NOT NULL)
                ORDER BY rank, run_at, id
                LIMIT :limit::integer
                FOR UPDATE SKIP LOCKED
            ) AS due
            WHERE NOT (:prefetch::boolean AND coalesce(due.last, false))
        ) AS measured
        WHERE measured.total <= :max_bytes::bigint OR measured.total = measured.bytes
    ))
    RETURNING {live_columns}, (:begun::boolean AND j.attempt >= nullif(j.max_attempts, 0)) AS last
)
SELECT * FROM claimed
-- A lost claim is a job still pending, so it need not wait for the disk; a last attempt that has begun is never to be
-- lost.
WHERE (SELECT CASE WHEN bool_or(last) THEN '' ELSE set_config('synchronous_commit', 'off', true) END FROM claimed)
    IS NOT NULL
ORDER BY rank, run_at, id
