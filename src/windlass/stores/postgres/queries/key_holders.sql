SELECT j.tenant, j.unique_scope, j.unique_key, j.id, j.unique_until
FROM {jobs} AS j JOIN json_to_recordset(:rows::text::json) AS given (tenant text, unique_scope text, unique_key text)
    ON j.tenant = given.tenant AND j.unique_scope = given.unique_scope AND j.unique_key = given.unique_key
        AND j.unique_held
UNION ALL
SELECT k.tenant, given.unique_scope, k.key, k.job_id, NULL
FROM {keys} AS k JOIN json_to_recordset(:rows::text::json) AS given (tenant text, unique_scope text, unique_key text)
    ON k.tenant = given.tenant AND k.scope IN (given.unique_scope, {any_type}) AND k.key = given.unique_key
