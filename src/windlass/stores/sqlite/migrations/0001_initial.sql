-- The tables of the PostgreSQL store in SQLite's terms: times are microseconds since 1970, ids are text, and history
-- is one table, since SQLite has no partitions to empty.

CREATE TABLE {jobs} (
    id text PRIMARY KEY NOT NULL,
    state text NOT NULL CHECK (state IN ('blocked', 'pending', 'running')),
    queue text NOT NULL,
    type text NOT NULL,
    tenant text NOT NULL DEFAULT '',
    rank integer NOT NULL DEFAULT 0,
    run_at integer NOT NULL,
    created_at integer NOT NULL,
    input text NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer,
    lease_seconds real,
    keep_seconds integer,
    policy text,
    token text,
    worker text,
    claimed_at integer,
    heard_at integer,
    leased_until integer,
    cancel_requested integer NOT NULL DEFAULT 0,
    linked integer NOT NULL DEFAULT 0,
    expires_at integer,
    previous_token text,
    unique_key text,
    unique_until text,
    unique_held integer NOT NULL DEFAULT 0,
    order_key text,
    lane integer,
    seq integer,
    chain_id text NOT NULL,
    chain_index integer NOT NULL DEFAULT 0,
    blockers_left integer,
    schedule text,
    labels text,
    error text,
    attempts text,
    progress text,
    trace text
);

CREATE INDEX {prefix}jobs_ready ON {jobs} (queue, rank, run_at, id, type)
    WHERE state = 'pending' AND (lane IS NULL OR lane = 2);

CREATE INDEX {prefix}jobs_running ON {jobs} (id) WHERE state = 'running';

-- What has to be started in time, until it is.
CREATE INDEX {prefix}jobs_expiry ON {jobs} (expires_at, id) WHERE expires_at IS NOT NULL AND state <> 'running';

CREATE UNIQUE INDEX {prefix}jobs_unique ON {jobs} (tenant, unique_key) WHERE unique_held;

CREATE UNIQUE INDEX {prefix}jobs_chain ON {jobs} (chain_id, chain_index) WHERE chain_index > 0;

CREATE UNIQUE INDEX {prefix}jobs_head ON {jobs} (order_key, tenant) WHERE lane = 2;

CREATE INDEX {prefix}jobs_waiting ON {jobs} (tenant, order_key, seq) WHERE lane = 1;

CREATE INDEX {prefix}jobs_arriving ON {jobs} (run_at) WHERE lane = 0 AND state = 'pending';

CREATE INDEX {prefix}jobs_blocked ON {jobs} (id) WHERE state = 'blocked' AND blockers_left IS NULL;

CREATE TABLE {edges} (
    job_id text NOT NULL,
    position integer NOT NULL,
    chain_id text NOT NULL,
    done integer NOT NULL DEFAULT 0,
    output text,
    PRIMARY KEY (job_id, position)
) WITHOUT ROWID;

CREATE INDEX {prefix}edges_chain ON {edges} (chain_id) WHERE NOT done;

CREATE TABLE {history} (
    id text PRIMARY KEY NOT NULL,
    run_at integer NOT NULL,
    created_at integer NOT NULL,
    finished_at integer NOT NULL,
    purge_at integer,
    state text NOT NULL CHECK (state IN ('completed', 'failed', 'cancelled')),
    attempt integer NOT NULL,
    rank integer NOT NULL,
    chain_index integer NOT NULL,
    chain_id text NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    tenant text NOT NULL,
    input text NOT NULL,
    output text,
    max_attempts integer,
    lease_seconds real,
    keep_seconds integer,
    policy text,
    token text,
    worker text,
    claimed_at integer,
    expires_at integer,
    unique_key text,
    unique_until text,
    order_key text,
    schedule text,
    labels text,
    error text,
    attempts text,
    progress text,
    trace text
);

CREATE INDEX {prefix}history_type ON {history} (type, id);

CREATE INDEX {prefix}history_state ON {history} (state, finished_at, id) WHERE state <> 'completed';

CREATE INDEX {prefix}history_tenant ON {history} (tenant, id) WHERE tenant <> '';

CREATE INDEX {prefix}history_purge ON {history} (purge_at) WHERE purge_at IS NOT NULL;

CREATE INDEX {prefix}history_chain ON {history} (chain_id, chain_index) WHERE chain_index > 0;

CREATE TABLE {keys} (
    tenant text NOT NULL,
    key text NOT NULL,
    job_id text NOT NULL,
    ends_at integer,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

CREATE INDEX {prefix}keys_job ON {keys} (job_id);

CREATE INDEX {prefix}keys_end ON {keys} (ends_at) WHERE ends_at IS NOT NULL;

-- Workers that are alive.
CREATE TABLE {workers} (
    name text PRIMARY KEY NOT NULL,
    details text NOT NULL,
    started_at integer NOT NULL,
    heard_at integer NOT NULL
);

-- Schedules; `call` is the job as JSON. A schedule is read by its name, or when it is due.
CREATE TABLE {schedules} (
    name text PRIMARY KEY NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    catch_up text NOT NULL,
    call text NOT NULL,
    declared text NOT NULL,
    declared_at integer NOT NULL,
    paused_at integer,
    next_at integer NOT NULL,
    last_at integer
);

CREATE INDEX {prefix}schedules_due ON {schedules} (next_at) WHERE paused_at IS NULL;

CREATE TABLE {queues} (name text PRIMARY KEY NOT NULL, paused_at integer) WITHOUT ROWID;

-- One writer at a time: the counts can be kept in place.
CREATE TABLE {tallies} (
    queue text NOT NULL,
    type text NOT NULL,
    state text NOT NULL,
    count integer NOT NULL,
    PRIMARY KEY (queue, type, state)
) WITHOUT ROWID;
