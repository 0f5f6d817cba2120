-- The last job of each chain that has ended; no row for a chain with a live job.
SELECT chain_id, state, output, id, type FROM (
    SELECT chain_id, state, output, id, type, row_number() OVER (PARTITION BY chain_id ORDER BY chain_index DESC) AS nth
    FROM {history} AS h WHERE (id {in_ids} OR (chain_id {in_ids} AND chain_index > 0))
    AND NOT EXISTS (SELECT 1 FROM {jobs} AS j WHERE j.id = h.chain_id)
    AND NOT EXISTS (SELECT 1 FROM {jobs} AS j WHERE j.chain_id = h.chain_id AND j.chain_index > 0))
WHERE nth = 1
