-- So that none of them is brought back until we are done. The chains of those that another transaction has locked: it
-- may be bringing them back.
WITH ended AS (
    SELECT id, chain_id FROM {history} WHERE id IN (
        SELECT unnest(:ids::uuid[])
        UNION ALL
        SELECT id FROM {history} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
), held AS (
    SELECT id FROM {history} WHERE id IN (SELECT id FROM ended) ORDER BY id FOR SHARE SKIP LOCKED
)
SELECT DISTINCT chain_id FROM ended WHERE id NOT IN (SELECT id FROM held)
