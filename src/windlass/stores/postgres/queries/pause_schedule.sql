UPDATE {schedules} SET paused_at = coalesce(paused_at, {now}) WHERE name = :name::text RETURNING name
