-- Whether anybody is on the way in: two probes, and nearly always nobody.
SELECT EXISTS (SELECT FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at <= {now}),
    EXISTS (SELECT FROM {jobs} WHERE state = 'blocked' AND blockers_left IS NULL)
