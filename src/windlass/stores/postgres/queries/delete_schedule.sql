DELETE FROM {schedules} WHERE name = :name::text RETURNING name
