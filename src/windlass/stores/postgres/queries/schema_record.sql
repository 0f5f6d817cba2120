INSERT INTO {migrations} (version, name, min_compatible)
VALUES (:version::integer, :name::text, :min_compatible::integer)
