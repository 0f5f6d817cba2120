SELECT tenant, unique_key, id, 1 FROM {jobs} WHERE tenant = :tenant AND unique_key = :unique_key AND unique_held
UNION ALL
SELECT tenant, key, job_id, 0 FROM {keys} WHERE tenant = :tenant AND key = :unique_key
