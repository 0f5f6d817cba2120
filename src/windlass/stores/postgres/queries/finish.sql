-- Through the primary key only: naming the state here would make the planner walk the index of running jobs and its
-- dead entries. The fence stands in the DELETE itself.
WITH given AS (
    {given}
), gone AS (
    DELETE FROM {jobs} AS j USING given AS g
    WHERE j.id = g.id AND j.token IS NOT DISTINCT FROM g.token {plain}
    RETURNING j.*, {keep} AS keep, {stay} AS stay, {slot} AS slot, g.new_state::{state}, g.output, g.new_error, g.story, g.said
), kept AS (
    INSERT INTO {history} ({history_columns})
    SELECT id, run_at, created_at, {now}, {now} + make_interval(secs => nullif(stay, -1)), new_state, attempt,
        slot, rank, chain_index, chain_id, queue, type, tenant, input, output, max_attempts, lease_seconds,
        keep, policy, token, worker, claimed_at, expires_at, unique_key, unique_scope, unique_until, order_key, schedule,
        labels, new_error, coalesce(story, attempts), coalesce(said, progress), trace, if_failed, chain_trace
    FROM gone WHERE keep <> 0
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, new_state, count(*) FROM gone WHERE keep <> 0 GROUP BY 1, 2, 3, 4
) {going_on}
{answer}
