-- The oldest snapshot that is held in this database, and the number of sessions that this role may not see.
SELECT
    (SELECT json_build_array(a.pid, a.usename, a.application_name, a.state, extract(epoch FROM now() - a.xact_start))
    FROM pg_stat_activity AS a
    WHERE a.backend_xmin IS NOT NULL AND a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid()
    AND a.datname = current_database()
    ORDER BY a.xact_start LIMIT 1)::text,
    (SELECT json_build_array(p.gid, extract(epoch FROM now() - p.prepared)) FROM pg_prepared_xacts AS p
    WHERE p.database = current_database() ORDER BY p.prepared LIMIT 1)::text,
    (SELECT count(*) FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.backend_type IS NULL)
