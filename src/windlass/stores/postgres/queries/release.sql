UPDATE {jobs} AS j SET
    state = 'pending',
    token = NULL,
    previous_token = j.token,
    worker = NULL,
    leased_until = NULL,
    run_at = coalesce(CASE WHEN g.run_at IS NOT NULL THEN greatest(g.run_at, {now}) END, {now} + make_interval(secs => g.delay_seconds), j.run_at),
    attempt = j.attempt - g.refund,
    error = coalesce(g.error, j.error),
    attempts = coalesce(g.attempts, j.attempts),
    progress = coalesce(g.progress, j.progress)
FROM json_to_recordset(:rows::text::json) AS g (
    id uuid, token uuid, run_at timestamptz, delay_seconds float8, refund integer, error text, attempts text,
    progress text)
WHERE j.id = g.id AND j.token = g.token AND NOT j.cancel_requested
RETURNING j.id, j.queue
