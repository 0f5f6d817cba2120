-- All of a batch in each of two statements: SQLite has no data-modifying CTEs, but nobody can come between either.
-- Neither begins with WITH: a caller's sqlite3 connection begins its transaction before INSERT and DELETE only.
-- CROSS JOIN keeps the order: from what is given to the jobs, through the primary key.
INSERT INTO {history} ({history_columns})
WITH given (id, token, state, output, error, attempts, progress) AS (VALUES {given})
SELECT {history_values}
FROM given AS g CROSS JOIN {jobs} AS j
WHERE j.id = g.id AND j.token IS g.token {plain} AND {keep} <> 0;

DELETE FROM {jobs} WHERE rowid IN (
    WITH given (id, token, state, output, error, attempts, progress) AS (VALUES {given})
    SELECT j.rowid FROM given AS g CROSS JOIN {jobs} AS j
    WHERE j.id = g.id AND j.token IS g.token {plain})
RETURNING id, queue, type, {keep}
