-- In id order. A row that another transaction has locked is skipped: its chain is not linked.
WITH live AS (
    SELECT id, chain_id FROM {jobs} WHERE id IN (
        SELECT unnest(:ids::uuid[])
        UNION ALL
        SELECT id FROM {jobs} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
), linked AS (
    UPDATE {jobs} SET linked = true WHERE id IN (
        SELECT id FROM {jobs} WHERE id IN (SELECT id FROM live) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id
)
SELECT live.chain_id, bool_and(linked.id IS NOT NULL) FROM live LEFT JOIN linked USING (id) GROUP BY 1
