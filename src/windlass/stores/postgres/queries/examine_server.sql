-- Version, connections, and the dead rows of the live table.
SELECT current_setting('server_version'),
    (SELECT sum(numbackends)::int FROM pg_stat_database),
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
    s.n_live_tup, s.n_dead_tup
FROM pg_stat_user_tables AS s WHERE s.relid = '{jobs}'::regclass
