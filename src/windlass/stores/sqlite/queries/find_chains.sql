SELECT id, chain_id FROM {jobs} WHERE id {in_ids}
UNION ALL
SELECT id, chain_id FROM {history} WHERE id {in_ids}
