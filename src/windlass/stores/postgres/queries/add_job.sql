-- `add_jobs` for a single one, which is most of them: nothing to be unpacked.
INSERT INTO {jobs} (
    id, state, queue, type, tenant, rank, run_at, created_at, input, labels, max_attempts, lease_seconds,
    keep_seconds, policy, expires_at, unique_key, unique_scope, unique_until, unique_held, chain_id, chain_index, trace, order_key,
    lane, seq, if_failed, chain_trace)
VALUES (
    :id::uuid, :state::text::{state}, :queue::text, :type::text, :tenant::text, :rank::smallint,
    greatest(coalesce(:run_at::timestamptz, {now}) + make_interval(secs => :delay_seconds::float8),
        CASE WHEN :order_key::text IS NOT NULL OR NOT :of_tick::boolean THEN {now} END), {now}, :input::text::json,
    :labels::text, :max_attempts::integer, :lease_seconds::float8, :keep_seconds::integer, :policy::text,
    coalesce(:expires_at::timestamptz, {now} + make_interval(secs => :expires_seconds::float8)), :unique_key::text,
    :unique_scope::text, :unique_until::text, coalesce(:unique_until::text IN ('claimed', 'finished'), false),
    coalesce(:chain_id::uuid, :id::uuid), :chain_index::integer, :trace::text, :order_key::text,
    CASE WHEN :order_key::text IS NOT NULL THEN 0 END, CASE WHEN :order_key::text IS NOT NULL THEN nextval('{seq}') END,
    :if_failed::text, :chain_trace::text)
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at, expires_at
