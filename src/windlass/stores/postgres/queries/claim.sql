-- By ctid and one queue at a time: join forms and several queues re-plan into scans and sorts. The innermost SELECT
-- bounds the scan; rows that it locks and the claim does not take (too many bytes, a last attempt that must not wait in
-- a buffer) are unlocked when the statement ends. The size is that of the stored value, so that no value is unpacked for
-- it. The caller sorts the rows.
{head}
UPDATE {jobs} AS j SET
    state = 'running',
    attempt = j.attempt + 1,
    token = :token::uuid,
    worker = :worker::text,
    claimed_at = {now},
    heard_at = {now},
    leased_until = {now} + make_interval(secs => coalesce(
        :lease_seconds::float8, j.lease_seconds, ({policy} ->> 'lease_seconds')::float8)),
    lease_seconds = coalesce(j.lease_seconds, ({policy} ->> 'lease_seconds')::float8),
    max_attempts = coalesce(j.max_attempts, ({policy} ->> 'max_attempts')::integer),
    keep_seconds = CASE WHEN j.keep_seconds IS NULL AND {is_unresolved} THEN ({policy} ->> 'keep_seconds')::integer
        ELSE j.keep_seconds END,
    policy = CASE
        WHEN j.policy IS NULL THEN CASE WHEN j.lease_seconds IS NULL THEN {policy} ->> 'details' END
        WHEN {is_partial}
            THEN ((coalesce(({policy} ->> 'details')::jsonb, '{}') || j.policy::jsonb) - 'partial')::text
        ELSE j.policy END,
    unique_held = j.unique_held AND j.unique_until <> 'claimed',
    begun = {begun}
WHERE {hurry} j.ctid = ANY(ARRAY(
    SELECT measured.ctid FROM (
        SELECT due.ctid, due.bytes, sum(due.bytes) OVER (ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT j.ctid, pg_column_size(j.input) AS bytes,
                {is_last_next} AS last
            FROM {jobs} AS j
            WHERE j.queue = :queue::text AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2) AND j.run_at <= {now}
                AND (j.rank, j.run_at, j.id) > (:after_rank::smallint, :after_run_at::timestamptz, :after_id::uuid)
                {of_types}
                AND (j.expires_at IS NULL OR j.expires_at > {now})
                AND NOT {is_paused|:queue::text}
            ORDER BY j.rank, j.run_at, j.id
            LIMIT :limit::integer
            FOR UPDATE SKIP LOCKED
        ) AS due
        {which}
    ) AS measured
    WHERE measured.total <= :max_bytes::bigint OR measured.total = measured.bytes
))
RETURNING {claimed_columns}
{tail}
