-- `keep_seconds` is NULL where no keep= was given. Until now 604800 said so, and no job was given exactly this value.
-- History needs the change only for jobs that can be retried: `purge_at` is computed when a job ends.
-- Code of schema 2 can work beside this one. It still writes 604800 for the default. Here such a job counts as one with
-- keep="7d": if it fails, it is kept for 7 days and not for 30.

-- Locked as a whole: settlements lock many rows, each in an order of its own.
LOCK TABLE {jobs}, {history} IN EXCLUSIVE MODE;

UPDATE {jobs} SET keep_seconds = NULL WHERE keep_seconds = 604800;

UPDATE {history} SET keep_seconds = NULL WHERE keep_seconds = 604800 AND state <> 'completed';

-- The job of a schedule is JSON without its empty fields, and never ends with this one.
UPDATE {schedules} SET call = replace(call, '"keep_seconds":604800,', '')
WHERE call LIKE '%"keep_seconds":604800,%';
