-- In id order; a settlement that is under way is waited for, and then found to be gone.
UPDATE {jobs} SET linked = true WHERE id IN (
    SELECT id FROM {jobs} WHERE id IN (
        SELECT unnest(:ids::uuid[])
        UNION ALL
        SELECT id FROM {jobs} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
    ORDER BY id FOR UPDATE)
RETURNING chain_id
