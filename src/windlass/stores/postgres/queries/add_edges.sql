INSERT INTO {edges} (job_id, position, chain_id)
SELECT :id::uuid, place, chain FROM unnest(:chains::uuid[]) WITH ORDINALITY AS given (chain, place)
