-- However long the others take, and whatever bound our connections have.
SET LOCAL lock_timeout = 0;

-- Of all who start at once, one goes first; CREATE … IF NOT EXISTS alone still fails in a race.
SELECT pg_advisory_xact_lock(hashtextextended('windlass {migrations}', 0));

-- IF NOT EXISTS asks for the right to create one though it is there.
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
