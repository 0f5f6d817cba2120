INSERT INTO {keys} (tenant, key, job_id, ends_at)
SELECT tenant, unique_key, id, {now} + make_interval(secs => window_seconds)
FROM json_to_recordset(:rows::text::json) AS given (tenant text, unique_key text, id uuid, window_seconds float8)
ON CONFLICT DO NOTHING
RETURNING job_id
