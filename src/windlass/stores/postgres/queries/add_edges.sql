-- An earlier job of that id with keep=0 may have left edges.
INSERT INTO {edges} (job_id, position, chain_id)
SELECT :id::uuid, number, chain FROM unnest(:chains::uuid[]) WITH ORDINALITY AS given (chain, number)
ON CONFLICT (job_id, position) DO UPDATE SET chain_id = excluded.chain_id, done = false, output = NULL, failed = false
