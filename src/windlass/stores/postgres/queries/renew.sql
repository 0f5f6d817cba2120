UPDATE {jobs} AS j SET leased_until = {now} + make_interval(secs => g.seconds)
FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :seconds::float8[])) AS g (id, token, seconds)
WHERE j.id = g.id AND j.token = g.token
RETURNING j.id, j.leased_until, j.cancel_requested
