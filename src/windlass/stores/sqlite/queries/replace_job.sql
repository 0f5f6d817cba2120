UPDATE {jobs} SET
    input = :input,
    run_at = coalesce(:run_at, {now}) + CAST(:delay_seconds * 1000000 AS integer),
    rank = :rank,
    labels = :labels,
    expires_at = coalesce(:expires_at, {now} + CAST(:expires_seconds * 1000000 AS integer))
WHERE tenant = :tenant AND unique_key = :unique_key AND unique_held AND state IN ('pending', 'blocked')
RETURNING id
