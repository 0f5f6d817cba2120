UPDATE {schedules} SET next_at = :next_at::timestamptz, last_at = coalesce(:last_at::timestamptz, last_at)
WHERE name = :name::text AND next_at = :due_at::timestamptz AND paused_at IS NULL
RETURNING name
