SELECT {finished_columns} FROM {history} AS j WHERE (j.id {in_ids} OR (chain_id {in_ids} AND chain_index > 0))
AND NOT EXISTS (SELECT 1 FROM {jobs} AS l WHERE l.id = j.chain_id)
AND NOT EXISTS (SELECT 1 FROM {jobs} AS l WHERE l.chain_id = j.chain_id AND l.chain_index > 0)
AND NOT EXISTS (
    SELECT 1 FROM {history} AS n WHERE n.chain_id = j.chain_id AND n.chain_index > j.chain_index AND n.chain_index > 0)
