-- The last job of each chain that has ended; no row for a chain with a live job.
SELECT DISTINCT ON (chain_id) chain_id, state::text, output, id, type FROM {history} AS h WHERE id IN (
    SELECT unnest(:ids::uuid[])
    UNION ALL
    SELECT id FROM {history} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
AND NOT EXISTS (SELECT FROM {jobs} AS j WHERE j.id = h.chain_id)
AND NOT EXISTS (SELECT FROM {jobs} AS j WHERE j.chain_id = h.chain_id AND j.chain_index > 0)
ORDER BY chain_id, chain_index DESC
