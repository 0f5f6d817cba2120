-- The numbers of the keys whose locks were free. They are locked now.
SELECT (number - 1)::integer FROM unnest(:keys::text[]) WITH ORDINALITY AS k (key, number)
WHERE pg_try_advisory_xact_lock({lock_space}, mod(abs(hashtext(key)::bigint), 512)::integer)
ORDER BY 1
