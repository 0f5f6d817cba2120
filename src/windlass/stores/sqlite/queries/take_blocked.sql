SELECT id FROM {jobs} WHERE id {in_ids} AND state = 'blocked' AND blockers_left IS NULL
