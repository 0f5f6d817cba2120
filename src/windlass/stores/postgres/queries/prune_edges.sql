-- The edges of jobs that are gone.
DELETE FROM {edges} WHERE (job_id, position) IN (
    SELECT job_id, position FROM {edges} AS e
    WHERE NOT EXISTS (SELECT FROM {jobs} WHERE id = e.job_id) AND NOT EXISTS (SELECT FROM {history} WHERE id = e.job_id)
    LIMIT :limit::integer)
