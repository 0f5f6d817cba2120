UPDATE {schedules} SET next_at = :next_at, last_at = coalesce(:last_at, last_at)
WHERE name = :name AND next_at = :due_at AND paused_at IS NULL
RETURNING name
