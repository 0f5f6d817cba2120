UPDATE {jobs} SET
    state = 'pending',
    token = NULL,
    previous_token = token,
    worker = NULL,
    leased_until = NULL,
    run_at = coalesce(max(:run_at, {now}), {now} + CAST(:delay_seconds * 1000000 AS integer), run_at),
    attempt = attempt - :refund,
    error = coalesce(:error, error),
    attempts = coalesce(:attempts, attempts),
    progress = coalesce(:progress, progress)
WHERE id = :id AND token = :token AND NOT cancel_requested
RETURNING id, queue
