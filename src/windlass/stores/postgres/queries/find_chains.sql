-- The chain of each job that exists, live or finished.
SELECT id, chain_id FROM {jobs} WHERE id = ANY(:ids::uuid[])
UNION ALL
SELECT id, chain_id FROM {history} WHERE id = ANY(:ids::uuid[])
