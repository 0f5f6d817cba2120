SELECT {live_columns} FROM {jobs} AS j WHERE state = 'running' AND token = :token::uuid
