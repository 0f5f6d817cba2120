-- The queues in which jobs are due, but none that this worker can claim. Each is read once, through the index alone.
SELECT named.value FROM json_each(:queues) AS named
WHERE EXISTS (
    SELECT 1 FROM {jobs} AS j
    WHERE j.queue = named.value AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2) AND j.run_at <= {now})
AND ({is_paused|named.value} OR NOT EXISTS (
    SELECT 1 FROM {jobs} AS j
    WHERE j.queue = named.value AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2) AND j.run_at <= {now} {typed}))
