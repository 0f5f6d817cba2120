SELECT queue, type, state::text, count(*) FROM {jobs} GROUP BY 1, 2, 3
UNION ALL
SELECT queue, type, state::text, sum(count)::bigint FROM {tallies} GROUP BY 1, 2, 3
