-- An earlier job of that id with keep=0 may have left edges. WHERE tells the parser that ON belongs to the INSERT.
INSERT INTO {edges} (job_id, position, chain_id) SELECT :id, key + 1, value FROM json_each(:chains) WHERE true
ON CONFLICT (job_id, position) DO UPDATE SET chain_id = excluded.chain_id, done = 0, output = NULL, failed = 0
