WITH gone AS (
    DELETE FROM {history} WHERE id = ANY(:ids::uuid[]) AND state IN ('failed', 'cancelled') RETURNING *
), back AS (
    INSERT INTO {jobs} (
        id, state, queue, type, tenant, rank, run_at, created_at, input, labels, max_attempts, lease_seconds,
        keep_seconds, policy, unique_key, unique_scope, unique_until, unique_held, order_key, lane, seq, chain_id, chain_index,
        schedule, error, attempts, progress, trace, if_failed, chain_trace, blockers_left)
    SELECT id, CASE WHEN (SELECT bool_or(NOT e.done) FROM {edges} AS e WHERE e.job_id = gone.id) THEN 'blocked'::{state}
        ELSE 'pending' END, queue, type, tenant, rank, {now}, created_at, input, labels, max_attempts, lease_seconds,
        nullif(keep_seconds, {keep_default}), policy, unique_key, unique_scope, unique_until, coalesce(unique_until = 'finished', false), order_key,
        CASE WHEN order_key IS NOT NULL THEN 0 END, CASE WHEN order_key IS NOT NULL THEN nextval('{seq}') END,
        chain_id, chain_index, schedule, error, attempts, progress, trace,
    if_failed, chain_trace,
        (SELECT CASE WHEN bool_and(e.done) THEN 0 END FROM {edges} AS e WHERE e.job_id = gone.id)
    FROM gone ORDER BY id
    ON CONFLICT DO NOTHING
    RETURNING id, queue
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, state, -count(*) FROM gone GROUP BY 1, 2, 3, 4
)
SELECT gone.id, gone.queue, gone.state::text, back.id IS NOT NULL FROM gone LEFT JOIN back USING (id)
