-- `unique_scope`: the type of the job, or '' where a key is unique across types. `begun`: false while a job's last
-- attempt is claimed and its handler has not been called yet. `if_failed`: what becomes of a job when one that it waits
-- for fails; NULL: it waits. `chain_trace` and `trace` of an edge: W3C trace context.

ALTER TABLE {jobs}
    ADD COLUMN unique_scope text NOT NULL DEFAULT '',
    ADD COLUMN begun boolean,
    ADD COLUMN if_failed text,
    ADD COLUMN chain_trace text;

ALTER TABLE {history}
    ADD COLUMN unique_scope text NOT NULL DEFAULT '',
    ADD COLUMN if_failed text,
    ADD COLUMN chain_trace text;

ALTER TABLE {edges}
    ADD COLUMN failed boolean NOT NULL DEFAULT false,
    ADD COLUMN trace text;

ALTER TABLE {edges} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

ALTER TABLE {keys} ADD COLUMN scope text NOT NULL DEFAULT '';

-- A key that was taken before is one of its job's type from now on.
UPDATE {jobs} SET unique_scope = type WHERE unique_key IS NOT NULL;

UPDATE {history} SET unique_scope = type WHERE unique_key IS NOT NULL;

-- Where the job is gone its type is unknown, and the key counts for every type: its scope is one that no type has.
UPDATE {keys} AS k SET scope = coalesce(
    (SELECT type FROM {jobs} WHERE id = k.job_id), (SELECT type FROM {history} WHERE id = k.job_id), {any_type});

-- The scope comes last: a key is looked for without it, too.
DROP INDEX "{schema}"."{prefix}jobs_unique";

CREATE UNIQUE INDEX {prefix}jobs_unique ON {jobs} (tenant, unique_key, unique_scope) WHERE unique_held;

ALTER TABLE {keys} DROP CONSTRAINT "{prefix}keys_pkey", ADD PRIMARY KEY (tenant, key, scope);

-- Who waits for a chain, and who has waited for it: to mark an edge as done leaves its index alone.
DROP INDEX "{schema}"."{prefix}edges_chain";

CREATE INDEX {prefix}edges_chain ON {edges} (chain_id, job_id);

-- Chains that ended badly, by their first jobs: only what ended badly pays for it.
CREATE INDEX {prefix}history_ends ON {history} (state, chain_id) WHERE state <> 'completed';
