-- TRUNCATE waits for every reader of this slot, and what comes after it waits behind it: so not for long. A slot that
-- was not emptied in its time may hold rows of the ring's next round; those are told apart under the lock. Nobody folds its counts meanwhile.
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
