INSERT INTO {queues} (name, paused_at) VALUES (:queue::text, {now})
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce({queues}.paused_at, excluded.paused_at)
