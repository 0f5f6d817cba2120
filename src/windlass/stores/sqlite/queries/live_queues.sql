-- From one queue's name to the next through the index, however many jobs each has.
WITH RECURSIVE found (queue) AS (
    SELECT min(queue) FROM {jobs} WHERE state = 'pending' AND (lane IS NULL OR lane = 2)
    UNION ALL
    SELECT (SELECT min(j.queue) FROM {jobs} AS j
            WHERE j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2) AND j.queue > found.queue)
    FROM found WHERE found.queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL
