UPDATE {jobs} SET heard_at = {now}, leased_until = coalesce({now} + CAST(lease_seconds * 1000000 AS integer), leased_until)
WHERE state = 'running' AND token IN (SELECT value FROM json_each(:tokens))
RETURNING id
