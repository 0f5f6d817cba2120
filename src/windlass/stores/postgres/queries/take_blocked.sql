-- Whoever else admits takes others.
SELECT id FROM {jobs} WHERE id = ANY(:ids::uuid[]) AND state = 'blocked' AND blockers_left IS NULL
ORDER BY id FOR UPDATE SKIP LOCKED
