SELECT tenant, unique_key, id, unique_until FROM {jobs} WHERE tenant = :tenant AND unique_key = :unique_key AND unique_held
UNION ALL
SELECT tenant, key, job_id, NULL FROM {keys} WHERE tenant = :tenant AND key = :unique_key
