UPDATE {edges} AS e SET done = 1, output = (
    SELECT json_extract(g.value, '$[1]') FROM json_each(:given) AS g WHERE json_extract(g.value, '$[0]') = e.chain_id)
WHERE e.chain_id IN (SELECT json_extract(value, '$[0]') FROM json_each(:given)) AND NOT e.done {of_jobs}
RETURNING job_id
