INSERT INTO {jobs} ({enqueued_columns})
VALUES ({enqueued_values})
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at, expires_at
