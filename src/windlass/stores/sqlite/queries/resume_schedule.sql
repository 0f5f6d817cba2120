UPDATE {schedules} SET
    paused_at = NULL, next_at = CASE WHEN paused_at IS NULL THEN next_at ELSE :next_at END
WHERE name = :name
RETURNING name
