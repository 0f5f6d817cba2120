-- One slot of the ring, if something in it was to go before today: judged by some of its pages, each time others, since
-- one that was not emptied in its time holds rows of the ring's next round as well. And how much is in it.
(SELECT {number}, (SELECT coalesce(sum(t.count), 0)::bigint FROM {tallies} AS t WHERE t.slot = {number})
    FROM "{schema}"."{prefix}history_{number}"
    TABLESAMPLE SYSTEM (least(100, 100 * 32.0 / greatest(1, pg_relation_size('"{schema}"."{prefix}history_{number}"') / 8192)))
    WHERE purge_at < date_trunc('day', {now}, 'UTC') LIMIT 1)
