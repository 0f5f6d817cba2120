UPDATE {schedules} SET paused_at = coalesce(paused_at, {now}) WHERE name = :name RETURNING name
