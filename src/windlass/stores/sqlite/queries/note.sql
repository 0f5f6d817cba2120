UPDATE {jobs} SET progress = :progress WHERE id = :id AND token = :token
