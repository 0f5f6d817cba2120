-- A job that is put off leaves the line of its order key until then. A job that is made due does not overtake earlier ones.
UPDATE {jobs} SET
    lane = CASE WHEN lane = 1 AND least(
        greatest(:run_at::timestamptz, {now}) + make_interval(secs => :delay_seconds::float8),
        created_at + make_interval(secs => :window_seconds::float8)) > {now} THEN 0 ELSE lane END,
    {replaced_values},
    run_at = greatest(least(
        greatest(:run_at::timestamptz, {now}) + make_interval(secs => :delay_seconds::float8),
        created_at + make_interval(secs => :window_seconds::float8)), CASE WHEN lane IN (0, 1) THEN {now} END),
    expires_at = coalesce(:expires_at::timestamptz, {now} + make_interval(secs => :expires_seconds::float8))
WHERE tenant = :tenant::text AND unique_scope = :unique_scope::text AND unique_key = :unique_key::text AND unique_held
    AND state IN ('pending', 'blocked')
RETURNING id
