-- Another process that admits at the same time takes other jobs.
SELECT id FROM {jobs} WHERE id = ANY(:ids::uuid[]) AND state = 'blocked' AND blockers_left IS NULL
ORDER BY id FOR UPDATE SKIP LOCKED
