-- Each of the two statements has the whole batch: SQLite has no data-modifying CTEs, but no other writer can come between.
-- Neither begins with WITH: a caller's sqlite3 connection begins its transaction before INSERT and DELETE only.
-- CROSS JOIN keeps the order of the join: from the given rows to the jobs, through the primary key.
INSERT INTO {history} ({history_columns})
WITH given ({given_columns}) AS (VALUES {given})
SELECT {history_values}
FROM given AS g CROSS JOIN {jobs} AS j
WHERE j.id = g.id AND j.token IS g.token {plain} AND {stay} <> 0;

DELETE FROM {jobs} WHERE rowid IN (
    WITH given ({given_columns}) AS (VALUES {given})
    SELECT j.rowid FROM given AS g CROSS JOIN {jobs} AS j
    WHERE j.id = g.id AND j.token IS g.token {plain})
RETURNING id, queue, type, keep_seconds IS NOT 0
