UPDATE {jobs} SET schedule = :name::text WHERE id {in_ids}
