-- So that none of these jobs is retried until this transaction ends. The answer: the chains of jobs that another
-- transaction has locked, since it may be retrying them.
WITH ended AS (
    SELECT id, chain_id FROM {history} WHERE id IN (
        SELECT unnest(:ids::uuid[])
        UNION ALL
        SELECT id FROM {history} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
), held AS (
    SELECT id FROM {history} WHERE id IN (SELECT id FROM ended) ORDER BY id FOR SHARE SKIP LOCKED
)
SELECT DISTINCT chain_id FROM ended WHERE id NOT IN (SELECT id FROM held)
