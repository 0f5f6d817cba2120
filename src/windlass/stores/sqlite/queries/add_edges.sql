INSERT INTO {edges} (job_id, position, chain_id) SELECT :id, key + 1, value FROM json_each(:chains)
