-- Through the ready index, one probe for each priority in use, however many jobs wait. Epochs are subtracted, since older
-- servers cannot subtract infinite timestamps.
WITH RECURSIVE places AS (
    SELECT queue, (SELECT min(j.rank) FROM {jobs} AS j
                   WHERE j.queue = named.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)) AS rank
    FROM unnest(:queues::text[]) AS named (queue)
    UNION ALL
    SELECT places.queue, (SELECT min(j.rank) FROM {jobs} AS j
                          WHERE j.queue = places.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)
                              AND j.rank > places.rank)
    FROM places WHERE places.rank IS NOT NULL
)
SELECT (extract(epoch FROM least(min(first.run_at),
    (SELECT min(run_at) FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at > {now})))
    - extract(epoch FROM {now}))::float8
FROM places CROSS JOIN LATERAL (
    SELECT j.run_at FROM {jobs} AS j
    WHERE j.queue = places.queue AND j.rank = places.rank AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)
    ORDER BY j.run_at LIMIT 1) AS first
