-- All live jobs of these chains, in id order.
SELECT id, chain_id, state::text, queue, token IS NOT NULL, lane, tenant, order_key FROM {jobs} WHERE id IN (
    SELECT unnest(:ids::uuid[])
    UNION ALL
    SELECT id FROM {jobs} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
ORDER BY id {locked}
