SELECT {now}, NULL, {schedule_columns} FROM (SELECT 1) AS one LEFT JOIN {schedules} AS s ON {true} ORDER BY s.name
