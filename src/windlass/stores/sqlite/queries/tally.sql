INSERT INTO {tallies} (queue, type, state, count) VALUES (:queue, :type, :state, :count)
ON CONFLICT (queue, type, state) DO UPDATE SET count = count + excluded.count
