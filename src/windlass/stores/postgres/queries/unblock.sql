-- The counts are grouped, since UPDATE … FROM changes a row once however many rows match. In id order, as all locks.
WITH held AS (
    SELECT j.id, g.fewer FROM unnest(:ids::uuid[], :counts::integer[]) AS g (id, fewer)
    JOIN {jobs} AS j ON j.id = g.id
    WHERE j.state = 'blocked' AND j.blockers_left IS NOT NULL
    ORDER BY j.id FOR UPDATE OF j
)
UPDATE {jobs} AS j SET
    blockers_left = j.blockers_left - h.fewer,
    state = CASE WHEN j.blockers_left = h.fewer THEN 'pending'::{state} ELSE j.state END,
    run_at = CASE WHEN j.blockers_left = h.fewer THEN greatest(j.run_at, {now}) ELSE j.run_at END
FROM held AS h WHERE j.id = h.id
RETURNING j.id, j.queue, j.state::text
