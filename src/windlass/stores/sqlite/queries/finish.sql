-- One job at a time, by its id: SQLite has neither data-modifying CTEs nor anyone who could come between.
INSERT INTO {history} ({history_columns})
SELECT id, run_at, created_at, {now}, {now} + nullif({keep}, -1) * 1000000, :state, attempt, rank, chain_index, chain_id,
    queue, type, tenant, input, :output, max_attempts, lease_seconds, {keep}, policy, token, worker, claimed_at,
    expires_at, unique_key, unique_until, order_key, schedule, labels, :error, coalesce(:attempts, attempts), trace
FROM {jobs} WHERE id = :id AND token IS :token AND NOT linked AND {keep} <> 0;

DELETE FROM {jobs} WHERE id = :id AND token IS :token AND NOT linked RETURNING id, queue, type, {keep} <> 0
