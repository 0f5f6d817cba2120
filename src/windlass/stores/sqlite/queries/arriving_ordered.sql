SELECT id, tenant, order_key, 0 FROM {jobs} WHERE lane = 0 AND state = 'pending' AND run_at <= {now}
ORDER BY run_at, rowid LIMIT :limit
