SELECT tenant, unique_scope, unique_key, id, unique_until FROM {jobs}
WHERE tenant = :tenant AND unique_scope = :unique_scope AND unique_key = :unique_key AND unique_held
UNION ALL
SELECT tenant, :unique_scope, key, job_id, NULL FROM {keys}
WHERE tenant = :tenant AND scope IN (:unique_scope, {any_type}) AND key = :unique_key
