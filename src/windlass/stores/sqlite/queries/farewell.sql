DELETE FROM {workers} WHERE name = :name
