DELETE FROM {jobs} WHERE id IN (SELECT value FROM json_each(:ids)) AND id IN (SELECT id FROM {history})
RETURNING id
