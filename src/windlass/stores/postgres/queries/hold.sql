-- A row that another transaction has locked is skipped.
UPDATE {jobs} SET heard_at = {now}, leased_until = coalesce({now} + make_interval(secs => lease_seconds), leased_until)
WHERE id IN (
    SELECT id FROM {jobs} WHERE state = 'running' AND token = ANY(:tokens::uuid[])
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id
