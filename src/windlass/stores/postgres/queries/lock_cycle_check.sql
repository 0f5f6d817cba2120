-- A slot that no lane has.
SELECT pg_advisory_xact_lock({lock_space}, 512)
