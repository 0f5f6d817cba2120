-- One statement: two reads can miss a job that moves from one table to the other.
SELECT id, state::text, queue, token, previous_token, cancel_requested, linked, lane, tenant, order_key, chain_id, type,
    leased_until
FROM {jobs} WHERE id = ANY(:ids::uuid[])
UNION ALL
SELECT id, state::text, queue, token, NULL, false, false, NULL, tenant, order_key, chain_id, type, NULL
FROM {history} WHERE id = ANY(:ids::uuid[])
