SELECT id FROM {jobs} AS j WHERE state = 'blocked' AND blockers_left IS NULL {of_others} ORDER BY id LIMIT :limit
