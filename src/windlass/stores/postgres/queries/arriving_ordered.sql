-- Without those of some keys. The last column: the key may be too long for an index.
SELECT id, tenant, order_key, octet_length(tenant) + octet_length(order_key) > 2000 FROM {jobs}
WHERE lane = 0 AND state = 'pending' AND run_at <= {now} {of_others}
ORDER BY run_at, seq LIMIT :limit::integer
