SELECT id, state, queue, token, previous_token, cancel_requested, linked, lane, tenant, order_key, chain_id, type,
    leased_until
FROM {jobs} WHERE id {in_ids}
UNION ALL
SELECT id, state, queue, token, NULL, 0, 0, NULL, tenant, order_key, chain_id, type, NULL
FROM {history} WHERE id {in_ids}
