-- `add_jobs` for a single job, as most calls add: there is no array to unpack.
INSERT INTO {jobs} ({enqueued_columns})
VALUES ({enqueued_values})
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at, expires_at
