SELECT queue, type, state, count(*) FROM {jobs} GROUP BY 1, 2, 3
UNION ALL
SELECT queue, type, state, count FROM {tallies}
