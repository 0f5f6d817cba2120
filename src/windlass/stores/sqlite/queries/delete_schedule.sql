DELETE FROM {schedules} WHERE name = :name RETURNING name
