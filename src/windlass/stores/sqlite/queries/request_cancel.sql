UPDATE {jobs} SET cancel_requested = 1
WHERE id IN (SELECT value FROM json_each(:ids)) AND token IS NOT NULL
RETURNING id, queue
