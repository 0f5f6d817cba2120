-- Wait as long as the other process takes, whatever time-out the connection has.
SET LOCAL lock_timeout = 0;

-- Of many processes that start at once, one goes first; CREATE … IF NOT EXISTS alone still fails in a race.
SELECT pg_advisory_xact_lock(hashtextextended('windlass {migrations}', 0));

-- CREATE SCHEMA IF NOT EXISTS needs the right to create one even if it exists.
DO $$ BEGIN
    IF to_regnamespace('"{schema}"') IS NULL THEN
        CREATE SCHEMA "{schema}";
    END IF;
    END $$;

CREATE TABLE IF NOT EXISTS {migrations} (
    version integer PRIMARY KEY,
    name text NOT NULL,
    min_compatible integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
