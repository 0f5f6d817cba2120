-- A job of that id that was not to be kept may have left some.
INSERT INTO {edges} (job_id, position, chain_id)
SELECT :id::uuid, place, chain FROM unnest(:chains::uuid[]) WITH ORDINALITY AS given (chain, place)
ON CONFLICT (job_id, position) DO UPDATE SET chain_id = excluded.chain_id, done = false, output = NULL, failed = false
