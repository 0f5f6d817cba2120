UPDATE {jobs} SET token = :token, worker = NULL WHERE id {in_ids} AND token IS NOT NULL
RETURNING {live_columns}
