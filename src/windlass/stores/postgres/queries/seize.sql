UPDATE {jobs} AS j SET token = :token::uuid, worker = NULL WHERE id = ANY(:ids::uuid[]) AND token IS NOT NULL
RETURNING {live_columns}
