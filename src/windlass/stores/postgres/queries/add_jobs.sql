INSERT INTO {jobs} ({enqueued_columns})
SELECT {enqueued_rows} FROM json_to_recordset(:rows::text::json) AS given ({given_types}, seq int8)
ON CONFLICT DO NOTHING
RETURNING id, run_at, created_at, expires_at
