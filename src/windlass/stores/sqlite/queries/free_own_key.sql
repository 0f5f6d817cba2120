UPDATE {jobs} SET unique_held = 0
WHERE id = :id AND token = :token AND unique_scope = :scope AND unique_key = :key AND unique_held
