-- The first job in line of each key that has no head.
UPDATE {jobs} AS j SET lane = 2 WHERE j.id IN (
    SELECT first.id FROM unnest(:tenants::text[], :order_keys::text[]) AS k (tenant, order_key)
    CROSS JOIN LATERAL (
        SELECT w.id FROM {jobs} AS w
        WHERE w.lane = 1 AND w.tenant = k.tenant AND w.order_key = k.order_key ORDER BY w.seq LIMIT 1
    ) AS first
    WHERE NOT EXISTS (
        SELECT FROM {jobs} AS h WHERE h.lane = 2 AND h.tenant = k.tenant AND h.order_key = k.order_key)
)
RETURNING j.queue
