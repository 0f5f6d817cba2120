WITH RECURSIVE priorities (queue, rank) AS (
    SELECT named.value, (SELECT min(j.rank) FROM {jobs} AS j
                         WHERE j.queue = named.value AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2))
    FROM json_each(:queues) AS named
    UNION ALL
    SELECT priorities.queue, (SELECT min(j.rank) FROM {jobs} AS j
                          WHERE j.queue = priorities.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2)
                              AND j.rank > priorities.rank)
    FROM priorities WHERE priorities.rank IS NOT NULL
)
SELECT (min(due) - {now}) / 1000000.0 FROM (
    SELECT (SELECT min(j.run_at) FROM {jobs} AS j
            WHERE j.queue = priorities.queue AND j.rank = priorities.rank AND j.state = 'pending'
                AND (j.lane IS NULL OR j.lane = 2)) AS due
    FROM priorities
    UNION ALL
    SELECT min(run_at) FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at > {now})
