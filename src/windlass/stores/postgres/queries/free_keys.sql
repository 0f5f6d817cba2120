DELETE FROM {keys} AS k
USING json_to_recordset(:rows::text::json) AS given (tenant text, unique_scope text, unique_key text)
WHERE k.tenant = given.tenant AND k.scope IN (given.unique_scope, {any_type}) AND k.key = given.unique_key
    AND k.ends_at <= {now}
