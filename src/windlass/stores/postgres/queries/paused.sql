SELECT name FROM {queues} WHERE paused_at IS NOT NULL ORDER BY name
