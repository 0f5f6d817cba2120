SELECT id FROM {jobs} WHERE state = 'blocked' AND blockers_left IS NULL ORDER BY id LIMIT :limit::integer
