-- Live jobs and finished ones live apart: the live table stays small, and to finish is to move.
-- `linked`: some job waits for this one's chain. `lane`: the place of a job with an order key: 0 arriving, 1 waiting,
-- 2 at the head. `blockers_left` of a blocked job is NULL until it is admitted.

CREATE TYPE {state} AS ENUM ('blocked', 'pending', 'running', 'completed', 'failed', 'cancelled');

CREATE TABLE {jobs} (
    id uuid PRIMARY KEY,
    run_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    state {state} NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    rank smallint NOT NULL DEFAULT 0,
    cancel_requested boolean NOT NULL DEFAULT false,
    linked boolean NOT NULL DEFAULT false,
    unique_held boolean NOT NULL DEFAULT false,
    lane smallint,
    chain_index integer NOT NULL DEFAULT 0,
    chain_id uuid NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    tenant text NOT NULL DEFAULT '',
    input json NOT NULL,
    max_attempts integer,
    lease_seconds double precision,
    keep_seconds integer,
    policy text,
    token uuid,
    worker text,
    claimed_at timestamptz,
    heard_at timestamptz,
    leased_until timestamptz,
    expires_at timestamptz,
    previous_token uuid,
    unique_key text,
    unique_until text,
    order_key text,
    seq bigint,
    blockers_left integer,
    schedule text,
    labels text,
    error text,
    attempts text,
    progress text,
    trace text
) WITH (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX {prefix}jobs_ready ON {jobs} (queue, rank, run_at, id, type)
    WHERE state = 'pending' AND (lane IS NULL OR lane = 2);

-- On the id, not on leased_until: an index on that would make every renewal write to it.
CREATE INDEX {prefix}jobs_running ON {jobs} (id) WHERE state = 'running';

-- What has to be started in time, until it is.
CREATE INDEX {prefix}jobs_expiry ON {jobs} (expires_at, id) WHERE expires_at IS NOT NULL AND state <> 'running';

CREATE UNIQUE INDEX {prefix}jobs_unique ON {jobs} (tenant, unique_key) WHERE unique_held;

CREATE UNIQUE INDEX {prefix}jobs_chain ON {jobs} (chain_id, chain_index) WHERE chain_index > 0;

CREATE UNIQUE INDEX {prefix}jobs_head ON {jobs} (order_key, tenant) WHERE lane = 2;

CREATE INDEX {prefix}jobs_waiting ON {jobs} (tenant, order_key, seq) WHERE lane = 1;

CREATE INDEX {prefix}jobs_arriving ON {jobs} (run_at, seq) WHERE lane = 0 AND state = 'pending';

CREATE INDEX {prefix}jobs_blocked ON {jobs} (id) WHERE state = 'blocked' AND blockers_left IS NULL;

CREATE SEQUENCE {seq};

-- What each blocked job waits for, in the order given. The output is copied here when the chain completes, so that
-- retention cannot take it away.
CREATE TABLE {edges} (
    job_id uuid NOT NULL,
    position integer NOT NULL,
    chain_id uuid NOT NULL,
    done boolean NOT NULL DEFAULT false,
    output text,
    PRIMARY KEY (job_id, position)
);

CREATE INDEX {prefix}edges_chain ON {edges} (chain_id) WHERE NOT done;

CREATE TABLE {history} (
    id uuid NOT NULL,
    run_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    purge_at timestamptz,
    state {state} NOT NULL,
    attempt integer NOT NULL,
    slot smallint NOT NULL,
    rank smallint NOT NULL,
    chain_index integer NOT NULL,
    chain_id uuid NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    tenant text NOT NULL,
    input json NOT NULL,
    output text,
    max_attempts integer,
    lease_seconds double precision,
    keep_seconds integer,
    policy text,
    token uuid,
    worker text,
    claimed_at timestamptz,
    expires_at timestamptz,
    unique_key text,
    unique_until text,
    order_key text,
    schedule text,
    labels text,
    error text,
    attempts text,
    progress text,
    trace text,
    PRIMARY KEY (id, slot)
) PARTITION BY LIST (slot);

-- A ring of day slots, each emptied by TRUNCATE when its day is over, and slot 32 for jobs that are kept longer.
DO $$ BEGIN
    FOR slot IN 0..32 LOOP
        EXECUTE format('CREATE TABLE %I.%I PARTITION OF {history} FOR VALUES IN (%s)
            WITH (autovacuum_vacuum_insert_scale_factor = 0.5)', '{schema}', '{prefix}history_' || slot, slot);
    END LOOP;
    END $$;

CREATE INDEX {prefix}history_type ON {history} (type, id);

CREATE INDEX {prefix}history_state ON {history} (state, finished_at, id) WHERE state <> 'completed';

CREATE INDEX {prefix}history_tenant ON {history} (tenant, id) WHERE tenant <> '';

CREATE INDEX {prefix}history_purge ON {history} (purge_at)
    WHERE purge_at IS NOT NULL AND (keep_seconds < 86400 OR slot = 32);

CREATE INDEX {prefix}history_chain ON {history} (chain_id, chain_index) WHERE chain_index > 0;

-- Keys that outlive their job: for ever, or for a time.
CREATE TABLE {keys} (
    tenant text NOT NULL,
    key text NOT NULL,
    job_id uuid NOT NULL,
    ends_at timestamptz,
    PRIMARY KEY (tenant, key)
);

CREATE INDEX {prefix}keys_job ON {keys} (job_id);

CREATE INDEX {prefix}keys_end ON {keys} (ends_at) WHERE ends_at IS NOT NULL;

-- Workers that are alive.
CREATE TABLE {workers} (
    name text PRIMARY KEY NOT NULL,
    details text NOT NULL,
    started_at timestamptz NOT NULL,
    heard_at timestamptz NOT NULL
);

-- Schedules; `call` is the job as JSON. A schedule is read by its name, or when it is due.
CREATE TABLE {schedules} (
    name text PRIMARY KEY NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    catch_up text NOT NULL,
    call text NOT NULL,
    declared text NOT NULL,
    declared_at timestamptz NOT NULL,
    paused_at timestamptz,
    next_at timestamptz NOT NULL,
    last_at timestamptz
);

CREATE INDEX {prefix}schedules_due ON {schedules} (next_at) WHERE paused_at IS NULL;

CREATE TABLE {queues} (name text PRIMARY KEY, paused_at timestamptz);

-- How many finished jobs there are, as insert-only differences that upkeep folds.
CREATE TABLE {tallies} (
    slot smallint NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    state {state} NOT NULL,
    count bigint NOT NULL
);
