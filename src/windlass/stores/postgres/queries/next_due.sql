-- Through the ready index, one probe for each priority in use, however many jobs wait. Epochs are subtracted, since older
-- servers cannot subtract infinite timestamps.
WITH RECURSIVE priorities AS (
    SELECT queue, (SELECT min(j.rank) FROM {jobs} AS j
                   WHERE j.queue = named.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)) AS rank
    FROM unnest(:queues::text[]) AS named (queue)
    UNION ALL
    SELECT priorities.queue, (SELECT min(j.rank) FROM {jobs} AS j
                          WHERE j.queue = priorities.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)
                              AND j.rank > priorities.rank)
    FROM priorities WHERE priorities.rank IS NOT NULL
)
SELECT (extract(epoch FROM least(min(first.run_at),
    (SELECT min(run_at) FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at > {now})))
    - extract(epoch FROM {now}))::float8
FROM priorities CROSS JOIN LATERAL (
    SELECT j.run_at FROM {jobs} AS j
    WHERE j.queue = priorities.queue AND j.rank = priorities.rank AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)
    ORDER BY j.run_at LIMIT 1) AS first
