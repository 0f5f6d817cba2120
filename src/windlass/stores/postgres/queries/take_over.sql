UPDATE {jobs} SET token = :token::uuid WHERE id = ANY(:ids::uuid[])
