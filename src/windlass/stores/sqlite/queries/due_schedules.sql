SELECT {now}, (SELECT min(next_at) FROM {schedules} WHERE paused_at IS NULL), {schedule_columns}
FROM (SELECT 1) AS one LEFT JOIN (
    SELECT * FROM {schedules} WHERE paused_at IS NULL AND next_at <= {now} ORDER BY next_at, name LIMIT :limit
) AS s ON {true}
ORDER BY s.next_at, s.name
