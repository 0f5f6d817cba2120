WITH gone AS (
    DELETE FROM {workers} WHERE heard_at < {now} - make_interval(secs => :gone_seconds::float8) AND name <> :name::text
)
INSERT INTO {workers} (name, details, started_at, heard_at) VALUES (:name::text, :details::text, {now}, {now})
ON CONFLICT (name) DO UPDATE SET details = excluded.details, heard_at = excluded.heard_at
