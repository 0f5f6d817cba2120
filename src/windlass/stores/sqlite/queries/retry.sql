INSERT INTO {jobs} (
    id, state, queue, type, tenant, rank, run_at, created_at, input, labels, max_attempts, lease_seconds,
    keep_seconds, policy, unique_key, unique_scope, unique_until, unique_held, order_key, lane, chain_id, chain_index, schedule,
    error, attempts, progress, trace, if_failed, chain_trace, blockers_left)
SELECT id, iif((SELECT min(e.done) FROM {edges} AS e WHERE e.job_id = h.id) = 0, 'blocked', 'pending'), queue, type, tenant, rank, {now}, created_at, input, labels, max_attempts, lease_seconds,
    nullif(keep_seconds, {keep_default}), policy, unique_key, unique_scope, unique_until, coalesce(unique_until = 'finished', 0), order_key,
    iif(order_key IS NULL, NULL, 0), chain_id, chain_index, schedule, error, attempts, progress, trace,
    if_failed, chain_trace,
    (SELECT iif(min(e.done) = 1, 0, NULL) FROM {edges} AS e WHERE e.job_id = h.id)
FROM {history} AS h WHERE id = :id AND state IN ('failed', 'cancelled')
ON CONFLICT DO NOTHING;

DELETE FROM {history}
WHERE id = :id AND state IN ('failed', 'cancelled') AND id IN (SELECT id FROM {jobs} WHERE id = :id)
RETURNING id, queue, type, state
