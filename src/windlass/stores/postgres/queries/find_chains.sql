-- The chain of each job that is there, live or finished.
SELECT id, chain_id FROM {jobs} WHERE id = ANY(:ids::uuid[])
UNION ALL
SELECT id, chain_id FROM {history} WHERE id = ANY(:ids::uuid[])
