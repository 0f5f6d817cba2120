SELECT EXISTS (SELECT 1 FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at <= {now}),
    EXISTS (SELECT 1 FROM {jobs} WHERE state = 'blocked' AND blockers_left IS NULL)
