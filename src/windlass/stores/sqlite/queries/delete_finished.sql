DELETE FROM {history} WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING id, queue, state, type
