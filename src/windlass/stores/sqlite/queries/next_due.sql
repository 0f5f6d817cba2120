WITH RECURSIVE places (queue, rank) AS (
    SELECT named.value, (SELECT min(j.rank) FROM {jobs} AS j
                         WHERE j.queue = named.value AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2))
    FROM json_each(:queues) AS named
    UNION ALL
    SELECT places.queue, (SELECT min(j.rank) FROM {jobs} AS j
                          WHERE j.queue = places.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)
                              AND j.rank > places.rank)
    FROM places WHERE places.rank IS NOT NULL
)
SELECT (min(due) - {now}) / 1000000.0 FROM (
    SELECT (SELECT min(j.run_at) FROM {jobs} AS j
            WHERE j.queue = places.queue AND j.rank = places.rank AND j.state = 'pending'
                AND (j.lane IS NULL OR j.lane = 2)) AS due
    FROM places
    UNION ALL
    SELECT min(run_at) FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at > {now})
