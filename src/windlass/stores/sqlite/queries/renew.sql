UPDATE {jobs} SET leased_until = {now} + CAST(:seconds * 1000000 AS integer)
WHERE id = :id AND token = :token
RETURNING id, leased_until, cancel_requested
