UPDATE {jobs} AS j SET lane = 1, seq = places.place FROM (
    SELECT id, nextval('{seq}') AS place FROM (
        SELECT id FROM {jobs} WHERE id = ANY(:ids::uuid[]) AND lane = 0 AND state = 'pending' ORDER BY run_at, seq
    ) AS arrived
) AS places
WHERE j.id = places.id AND j.lane = 0
