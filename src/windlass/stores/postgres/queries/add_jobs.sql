INSERT INTO {jobs} (
    id, state, queue, type, tenant, rank, run_at, created_at, input, labels, max_attempts, lease_seconds,
    keep_seconds, policy, expires_at, unique_key, unique_scope, unique_until, unique_held, chain_id, chain_index, trace, order_key,
    lane, seq, if_failed, chain_trace)
SELECT
    id, state::{state}, queue, type, tenant, rank, greatest(
        coalesce(run_at, {now}) + make_interval(secs => delay_seconds),
        CASE WHEN order_key IS NOT NULL OR NOT of_tick THEN {now} END),
    {now},
    input::json, labels, max_attempts, lease_seconds, keep_seconds, policy,
    coalesce(expires_at, {now} + make_interval(secs => expires_seconds)), unique_key, unique_scope, unique_until,
    coalesce(unique_until IN ('claimed', 'finished'), false), coalesce(chain_id, id), chain_index, trace,
    order_key, CASE WHEN order_key IS NOT NULL THEN 0 END,
    CASE WHEN order_key IS NOT NULL THEN coalesce(seq, nextval('{seq}')) END,
    if_failed, chain_trace
FROM json_to_recordset(:rows::text::json) AS given (
    id uuid, queue text, type text, tenant text, rank smallint, run_at timestamptz, delay_seconds float8, input text,
    labels text, max_attempts integer, lease_seconds float8, keep_seconds integer, policy text,
    expires_at timestamptz, expires_seconds float8, unique_key text, unique_scope text, unique_until text, chain_id uuid,
    chain_index integer, trace text, state text, order_key text, of_tick boolean, if_failed text, chain_trace text,
    seq bigint)
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at, expires_at
