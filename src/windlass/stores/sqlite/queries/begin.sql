UPDATE {jobs} SET begun = 1 WHERE id = :id AND token = :token
RETURNING id
