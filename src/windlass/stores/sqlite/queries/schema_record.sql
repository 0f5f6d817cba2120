INSERT INTO {migrations} (version, name, min_compatible, applied_at) VALUES (:version, :name, :min_compatible, {now})
