UPDATE {jobs} AS j SET
    heard_at = {now},
    leased_until = {now} + make_interval(secs => g.seconds),
    progress = coalesce(g.progress, j.progress)
FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :seconds::float8[]), (SELECT :progress::text[]))
    AS g (id, token, seconds, progress)
WHERE j.id = g.id AND j.token = g.token
RETURNING j.id, j.leased_until, j.cancel_requested
