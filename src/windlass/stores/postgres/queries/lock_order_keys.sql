-- 512 locks for all keys: two keys that share a lock wait for each other, shortly.
SELECT pg_advisory_xact_lock({lock_space}, slot) FROM (
    SELECT DISTINCT mod(abs(hashtext(key)::bigint), 512)::integer AS slot FROM unnest(:keys::text[]) AS key ORDER BY 1
) AS slots
