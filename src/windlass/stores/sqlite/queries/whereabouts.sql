SELECT id, state, queue, token, previous_token, cancel_requested
FROM {jobs} WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, state, queue, token, NULL, 0 FROM {history} WHERE id IN (SELECT value FROM json_each(:ids))
