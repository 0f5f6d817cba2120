UPDATE {jobs} SET cancel_requested = true WHERE id = ANY(:ids::uuid[]) AND token IS NOT NULL RETURNING id, queue
