DELETE FROM {workers} WHERE heard_at < {now} - CAST(:gone_seconds * 1000000 AS integer);

INSERT INTO {workers} (name, details, started_at, heard_at) VALUES (:name, :details, {now}, {now})
ON CONFLICT (name) DO UPDATE SET details = excluded.details, heard_at = excluded.heard_at
