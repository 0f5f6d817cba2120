-- `keep_seconds` is NULL where no keep= was given: the PostgreSQL store's migration of this number says more.

UPDATE {jobs} SET keep_seconds = NULL WHERE keep_seconds = 604800;

UPDATE {history} SET keep_seconds = NULL WHERE keep_seconds = 604800 AND state <> 'completed';

UPDATE {schedules} SET call = replace(call, '"keep_seconds":604800,', '')
WHERE call LIKE '%"keep_seconds":604800,%';
