SELECT DISTINCT e.chain_id FROM {edges} AS e JOIN {jobs} AS j ON j.id = e.job_id
WHERE NOT e.done AND j.id IN (
    SELECT unnest(:ids::uuid[])
    UNION ALL
    SELECT id FROM {jobs} WHERE chain_id = ANY(:ids::uuid[]) AND chain_index > 0)
