INSERT INTO {keys} (tenant, scope, key, job_id, ends_at)
SELECT :tenant, :unique_scope, :unique_key, :id, {now} + CAST(:window_seconds * 1000000 AS integer)
WHERE NOT EXISTS (SELECT 1 FROM {keys} WHERE tenant = :tenant AND scope = {any_type} AND key = :unique_key)
ON CONFLICT DO NOTHING
RETURNING job_id
