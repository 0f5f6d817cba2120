UPDATE {jobs} AS j SET
    state = 'running', attempt = 1, token = :token, worker = :worker, claimed_at = {now}, heard_at = {now},
    leased_until = {now} + CAST(1000000 * lease_seconds AS integer)
WHERE id = :id AND state = 'pending' AND attempt = 0 AND lane IS NULL AND run_at <= {now}
    AND lease_seconds IS NOT NULL AND NOT unique_held
    AND NOT {is_paused|j.queue}
RETURNING {live_columns}
