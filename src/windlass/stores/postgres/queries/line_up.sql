-- Behind the jobs in line, in the order of their arrival. A job that another transaction has locked keeps its turn: later
-- jobs of its key stay arriving, too.
WITH arrived AS MATERIALIZED (
    SELECT id, tenant, order_key, run_at, seq FROM {jobs}
    WHERE id = ANY(:ids::uuid[]) AND lane = 0 AND state = 'pending'
), held AS MATERIALIZED (
    SELECT id FROM {jobs} WHERE id = ANY(:ids::uuid[]) AND lane = 0 AND state = 'pending'
    ORDER BY id FOR UPDATE SKIP LOCKED
), numbered AS MATERIALIZED (
    SELECT id, nextval('{seq}') AS number FROM (
        SELECT id FROM (
            SELECT id, run_at, seq, bool_and(id IN (SELECT id FROM held))
                OVER (PARTITION BY tenant, order_key ORDER BY run_at, seq ROWS UNBOUNDED PRECEDING) AS in_turn
            FROM arrived
        ) AS in_order
        WHERE in_turn ORDER BY run_at, seq
    ) AS next
)
UPDATE {jobs} AS j SET lane = 1, seq = numbered.number FROM numbered
WHERE j.id = numbered.id AND j.lane = 0
RETURNING j.id
