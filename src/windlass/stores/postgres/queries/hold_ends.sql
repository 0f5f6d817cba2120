-- Someone may be bringing one of them back at this moment: then we wait, and look again.
SELECT id FROM {history} WHERE id IN (
    SELECT unnest(:ids::uuid[])
    UNION ALL
    SELECT id FROM {history} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
ORDER BY id FOR SHARE
