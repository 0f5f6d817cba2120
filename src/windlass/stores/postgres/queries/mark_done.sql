-- One row for each edge to a completed chain.
UPDATE {edges} AS e SET done = true, output = g.output
FROM unnest(:chains::uuid[], :outputs::text[]) AS g (chain_id, output)
WHERE e.chain_id = g.chain_id AND NOT e.done {of_jobs}
RETURNING e.job_id
