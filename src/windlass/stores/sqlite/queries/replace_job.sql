-- A job that is put off leaves the line of its order key until then. A job that is made due does not overtake earlier ones.
UPDATE {jobs} SET
    lane = CASE WHEN lane = 1 AND min(
        max(coalesce(:run_at, {now}), {now}) + CAST(:delay_seconds * 1000000 AS integer),
        created_at + CAST(coalesce(:window_seconds, 9e11) * 1000000 AS integer)) > {now} THEN 0 ELSE lane END,
    {replaced_values},
    run_at = max(min(
        max(coalesce(:run_at, {now}), {now}) + CAST(:delay_seconds * 1000000 AS integer),
        created_at + CAST(coalesce(:window_seconds, 9e11) * 1000000 AS integer)), iif(lane IN (0, 1), {now}, -1 << 63)),
    expires_at = coalesce(:expires_at, {now} + CAST(:expires_seconds * 1000000 AS integer))
WHERE tenant = :tenant AND unique_scope = :unique_scope AND unique_key = :unique_key AND unique_held
    AND state IN ('pending', 'blocked')
RETURNING id
