-- Whether there are arriving jobs: two probes, and usually there are none.
SELECT EXISTS (SELECT FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at <= {now}),
    EXISTS (SELECT FROM {jobs} WHERE state = 'blocked' AND blockers_left IS NULL)
