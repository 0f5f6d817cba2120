-- In the order of the batch, whatever the plan: two batches with the same keys must not deadlock.
INSERT INTO {keys} (tenant, scope, key, job_id, ends_at)
SELECT tenant, unique_scope, unique_key, id, {now} + make_interval(secs => window_seconds)
FROM ROWS FROM (json_to_recordset(:rows::text::json) AS (
    tenant text, unique_scope text, unique_key text, id uuid, window_seconds float8)) WITH ORDINALITY AS given (
    tenant, unique_scope, unique_key, id, window_seconds, number)
WHERE NOT EXISTS (
    SELECT FROM {keys} AS k WHERE k.tenant = given.tenant AND k.scope = {any_type} AND k.key = given.unique_key)
ORDER BY number
ON CONFLICT DO NOTHING
RETURNING job_id
