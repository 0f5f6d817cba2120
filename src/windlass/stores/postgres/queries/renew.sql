-- In id order. A row that another transaction has locked is skipped, so that it delays no other lease.
WITH held AS (
    SELECT j.id, g.seconds, g.progress
    FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :seconds::float8[]), (SELECT :progress::text[]))
        AS g (id, token, seconds, progress)
    JOIN {jobs} AS j ON j.id = g.id AND j.token = g.token
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {jobs} AS j SET
    heard_at = {now},
    leased_until = {now} + make_interval(secs => h.seconds),
    progress = coalesce(h.progress, j.progress)
FROM held AS h WHERE j.id = h.id
RETURNING j.id, j.leased_until, j.cancel_requested
