UPDATE {jobs} SET unique_held = false
WHERE id = :id::uuid AND token = :token::uuid AND unique_scope = :scope::text AND unique_key = :key::text AND unique_held
