-- An earlier job of that id with keep=0 may have left edges.
INSERT INTO {edges} (job_id, position, chain_id)
SELECT :id::uuid, place, chain FROM unnest(:chains::uuid[]) WITH ORDINALITY AS given (chain, place)
ON CONFLICT (job_id, position) DO UPDATE SET chain_id = excluded.chain_id, done = false, output = NULL, failed = false
