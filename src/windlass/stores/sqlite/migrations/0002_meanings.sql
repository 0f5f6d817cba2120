-- The columns of the PostgreSQL store's migration of this number. A table's primary key cannot be changed here, so the
-- table of keys is made anew.

ALTER TABLE {jobs} ADD COLUMN unique_scope text NOT NULL DEFAULT '';

ALTER TABLE {jobs} ADD COLUMN begun integer;

ALTER TABLE {jobs} ADD COLUMN if_failed text;

ALTER TABLE {jobs} ADD COLUMN chain_trace text;

ALTER TABLE {history} ADD COLUMN unique_scope text NOT NULL DEFAULT '';

ALTER TABLE {history} ADD COLUMN if_failed text;

ALTER TABLE {history} ADD COLUMN chain_trace text;

ALTER TABLE {edges} ADD COLUMN failed integer NOT NULL DEFAULT 0;

ALTER TABLE {edges} ADD COLUMN trace text;

-- A key that was taken before is one of its job's type from now on.
UPDATE {jobs} SET unique_scope = type WHERE unique_key IS NOT NULL;

UPDATE {history} SET unique_scope = type WHERE unique_key IS NOT NULL;

-- The scope comes last: a key is looked for without it, too.
DROP INDEX {prefix}jobs_unique;

CREATE UNIQUE INDEX {prefix}jobs_unique ON {jobs} (tenant, unique_key, unique_scope) WHERE unique_held;

ALTER TABLE {keys} RENAME TO {prefix}keys_before;

CREATE TABLE {keys} (
    tenant text NOT NULL,
    scope text NOT NULL DEFAULT '',
    key text NOT NULL,
    job_id text NOT NULL,
    ends_at integer,
    PRIMARY KEY (tenant, key, scope)
) WITHOUT ROWID;

-- Where the job is gone its type is unknown, and the key counts for every type: its scope is one that no type has.
INSERT INTO {keys} (tenant, scope, key, job_id, ends_at)
SELECT tenant, coalesce((SELECT type FROM {jobs} WHERE id = job_id), (SELECT type FROM {history} WHERE id = job_id),
    {any_type}),
    key, job_id, ends_at
FROM {prefix}keys_before;

DROP TABLE {prefix}keys_before;

CREATE INDEX {prefix}keys_job ON {keys} (job_id);

CREATE INDEX {prefix}keys_end ON {keys} (ends_at) WHERE ends_at IS NOT NULL;

-- Who waits for a chain, and who has waited for it: to mark an edge as done leaves its index alone.
DROP INDEX {prefix}edges_chain;

CREATE INDEX {prefix}edges_chain ON {edges} (chain_id, job_id);

-- Chains that ended badly, by their first jobs: only what ended badly pays for it.
CREATE INDEX {prefix}history_ends ON {history} (state, chain_id) WHERE state <> 'completed';
