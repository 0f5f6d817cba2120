-- TRUNCATE waits for every reader of this slot, and later readers wait behind it: so it waits shortly. A slot that was
-- not emptied in its time may hold rows of the ring's next round; under the lock these are found. The advisory lock
-- keeps others from folding its counts meanwhile.
DO $$ BEGIN
    SET LOCAL lock_timeout = '100ms';
    PERFORM pg_advisory_xact_lock({lock_space}, 513);
    LOCK TABLE "{schema}"."{prefix}history_{number}" IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM "{schema}"."{prefix}history_{number}" WHERE purge_at IS NULL OR purge_at > {now}) THEN
        TRUNCATE "{schema}"."{prefix}history_{number}";
        DELETE FROM {tallies} WHERE slot = {number};
    END IF;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END $$
