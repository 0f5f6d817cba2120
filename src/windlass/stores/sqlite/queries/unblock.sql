UPDATE {jobs} AS j SET
    blockers_left = blockers_left - g.fewer,
    state = iif(blockers_left = g.fewer, 'pending', state),
    run_at = iif(blockers_left = g.fewer, max(run_at, {now}), run_at)
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS fewer FROM json_each(:given)) AS g
WHERE j.id = g.id AND j.state = 'blocked' AND j.blockers_left IS NOT NULL
RETURNING id, queue, state
