DELETE FROM {edges} WHERE job_id = ANY(:ids::uuid[]);

DELETE FROM {keys} WHERE job_id = ANY(:ids::uuid[]);

DELETE FROM {jobs} WHERE id = ANY(:ids::uuid[])
