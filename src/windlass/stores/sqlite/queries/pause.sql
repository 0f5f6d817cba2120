INSERT INTO {queues} (name, paused_at) VALUES (:queue, {now})
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(paused_at, excluded.paused_at)
