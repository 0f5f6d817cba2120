INSERT INTO {keys} (tenant, key, job_id, ends_at)
VALUES (:tenant, :unique_key, :id, {now} + CAST(:window_seconds * 1000000 AS integer))
ON CONFLICT DO NOTHING
RETURNING job_id
