INSERT INTO {jobs} (
    id, state, queue, type, tenant, rank, run_at, created_at, input, labels, max_attempts, lease_seconds,
    keep_seconds, policy, expires_at, unique_key, unique_scope, unique_until, unique_held, chain_id, chain_index, trace, order_key,
    lane, seq, if_failed, chain_trace)
VALUES (
    :id, :state, :queue, :type, :tenant, :rank, max(
        coalesce(:run_at, {now}) + CAST(:delay_seconds * 1000000 AS integer), iif(:order_key IS NULL AND :of_tick, -1 << 63, {now})), {now}, :input,
    :labels, :max_attempts, :lease_seconds, :keep_seconds, :policy,
    coalesce(:expires_at, {now} + CAST(:expires_seconds * 1000000 AS integer)), :unique_key, :unique_scope, :unique_until,
    coalesce(:unique_until IN ('claimed', 'finished'), 0), coalesce(:chain_id, :id), :chain_index, :trace, :order_key, iif(:order_key IS NULL, NULL, 0), NULL,
    :if_failed, :chain_trace)
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at, expires_at
