SELECT id FROM {jobs} AS j WHERE state = 'blocked' AND blockers_left IS NULL ORDER BY id LIMIT :limit
