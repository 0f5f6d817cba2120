UPDATE {jobs} SET schedule = :name WHERE id {in_ids}
