-- One slot of the ring with the number of its jobs, if it holds jobs whose time was over before today. A sample of its
-- pages decides, since a slot that was not emptied in its time also holds rows of the ring's next round.
(SELECT {number}, (SELECT coalesce(sum(t.count), 0)::bigint FROM {tallies} AS t WHERE t.slot = {number})
    FROM "{schema}"."{prefix}history_{number}"
    TABLESAMPLE SYSTEM (least(100, 100 * 32.0 / greatest(1, pg_relation_size('"{schema}"."{prefix}history_{number}"') / 8192)))
    WHERE purge_at < date_trunc('day', {now}, 'UTC') LIMIT 1)
