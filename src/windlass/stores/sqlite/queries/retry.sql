INSERT INTO {jobs} ({retried_columns})
SELECT {retried_values}
FROM {history} AS h WHERE id = :id AND state IN ('failed', 'cancelled')
ON CONFLICT DO NOTHING;

DELETE FROM {history}
WHERE id = :id AND state IN ('failed', 'cancelled') AND id IN (SELECT id FROM {jobs} WHERE id = :id)
RETURNING id, queue, type, state
