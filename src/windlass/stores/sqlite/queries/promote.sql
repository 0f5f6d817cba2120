UPDATE {jobs} SET lane = 2 WHERE rowid IN (
    SELECT (SELECT w.rowid FROM {jobs} AS w WHERE w.lane = 1
        AND w.tenant = json_extract(k.value, '$[0]') AND w.order_key = json_extract(k.value, '$[1]')
        ORDER BY w.seq LIMIT 1)
    FROM json_each(:pairs) AS k
    WHERE NOT EXISTS (SELECT 1 FROM {jobs} AS h WHERE h.lane = 2
        AND h.tenant = json_extract(k.value, '$[0]') AND h.order_key = json_extract(k.value, '$[1]'))
)
RETURNING queue
