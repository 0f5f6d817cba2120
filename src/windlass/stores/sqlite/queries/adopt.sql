SELECT {live_columns} FROM {jobs} WHERE state = 'running' AND token = :token
