CREATE TABLE IF NOT EXISTS {migrations} (
    version integer PRIMARY KEY,
    name text NOT NULL,
    min_compatible integer NOT NULL,
    applied_at integer NOT NULL
)
