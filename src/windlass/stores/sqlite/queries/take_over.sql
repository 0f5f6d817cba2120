UPDATE {jobs} SET token = :token WHERE id IN (SELECT value FROM json_each(:ids))
