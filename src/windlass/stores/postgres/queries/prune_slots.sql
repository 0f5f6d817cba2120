-- The ring's slots whose day is over, going by the row that each was begun with; and how much is in them.
SELECT slot, (SELECT coalesce(sum(t.count), 0)::bigint FROM {tallies} AS t WHERE t.slot = ring.slot)
FROM generate_series(0, 31) AS ring (slot)
WHERE (SELECT h.purge_at < date_trunc('day', {now}, 'UTC') FROM {history} AS h WHERE h.slot = ring.slot LIMIT 1)
