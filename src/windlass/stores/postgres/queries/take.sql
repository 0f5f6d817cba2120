UPDATE {jobs} AS j SET
    state = 'running', attempt = 1, token = :token::uuid, worker = :worker::text, claimed_at = {now}, heard_at = {now},
    leased_until = {now} + make_interval(secs => j.lease_seconds)
WHERE j.id = :id::uuid AND j.state = 'pending' AND j.attempt = 0 AND j.lane IS NULL AND j.run_at <= {now}
    AND j.lease_seconds IS NOT NULL AND NOT j.unique_held
    AND NOT {is_paused|j.queue}
RETURNING {live_columns}
