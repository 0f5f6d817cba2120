-- The queues in which jobs are due, but none that this worker can claim. Each is read once, through the index alone.
SELECT named.queue FROM unnest(:queues::text[]) AS named (queue)
WHERE EXISTS (
    SELECT FROM {jobs} AS j
    WHERE j.queue = named.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2) AND j.run_at <= {now})
AND ({is_paused|named.queue} OR NOT EXISTS (
    SELECT FROM {jobs} AS j
    WHERE j.queue = named.queue AND j.state = 'pending' AND (j.lane IS NULL OR j.lane = 2) AND j.run_at <= {now} {typed}))
