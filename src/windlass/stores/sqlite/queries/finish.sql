-- All of a batch in each of three statements: SQLite has no data-modifying CTEs, but nobody can come between either.
-- CROSS JOIN keeps the order: from what is given to the jobs, through the primary key.
INSERT INTO {history} ({history_columns})
SELECT j.id, run_at, created_at, {now}, {now} + nullif({keep}, -1) * 1000000, {given}'$[2]'), attempt, rank,
    chain_index, chain_id, queue, j.type, tenant, input, {given}'$[3]'), max_attempts, lease_seconds, {keep}, policy,
    token, worker, claimed_at, expires_at, unique_key, unique_until, order_key, schedule, labels, {given}'$[4]'),
    coalesce({given}'$[5]'), attempts), coalesce({given}'$[6]'), progress), trace
FROM json_each(:rows) AS g CROSS JOIN {jobs} AS j
WHERE j.id = {given}'$[0]') AND token IS {given}'$[1]') AND NOT linked AND {keep} <> 0;

INSERT INTO {tallies} (queue, type, state, count)
SELECT queue, j.type, {given}'$[2]'), count(*)
FROM json_each(:rows) AS g CROSS JOIN {jobs} AS j
WHERE j.id = {given}'$[0]') AND token IS {given}'$[1]') AND NOT linked AND {keep} <> 0
GROUP BY 1, 2, 3
ON CONFLICT (queue, type, state) DO UPDATE SET count = count + excluded.count;

DELETE FROM {jobs} WHERE rowid IN (
    SELECT j.rowid FROM json_each(:rows) AS g CROSS JOIN {jobs} AS j
    WHERE j.id = {given}'$[0]') AND token IS {given}'$[1]') AND NOT linked)
RETURNING id
