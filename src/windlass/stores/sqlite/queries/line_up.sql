-- Behind the jobs in line, in the order of their arrival: the later row has the higher rowid.
UPDATE {jobs} AS j SET lane = 1, seq = numbered.number FROM (
    SELECT a.rowid AS row, row_number() OVER (PARTITION BY a.tenant, a.order_key ORDER BY a.run_at, a.rowid) + coalesce(
        (SELECT max(w.seq) FROM {jobs} AS w WHERE w.lane = 1 AND w.tenant = a.tenant AND w.order_key = a.order_key), 0
    ) AS number
    FROM {jobs} AS a WHERE a.id {in_ids} AND a.lane = 0 AND a.state = 'pending'
) AS numbered
WHERE j.rowid = numbered.row
RETURNING id
