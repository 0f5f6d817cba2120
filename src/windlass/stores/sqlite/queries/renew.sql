UPDATE {jobs} SET
    heard_at = {now},
    leased_until = {now} + CAST(:seconds * 1000000 AS integer),
    progress = coalesce(:progress, progress)
WHERE id = :id AND token = :token
RETURNING id, leased_until, cancel_requested
