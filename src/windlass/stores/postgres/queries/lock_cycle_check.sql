-- A number that no order key has.
SELECT pg_advisory_xact_lock({lock_space}, 512)
