-- Through the primary key only: with a condition on the state, the planner would walk the index of running jobs and its
-- dead entries. The fence is in the DELETE itself.
WITH given AS (
    {given}
), gone AS (
    DELETE FROM {jobs} AS j USING given AS g
    WHERE j.id = g.id AND j.token IS NOT DISTINCT FROM g.token {plain}
    RETURNING j.*, {stay} AS stay, {slot} AS slot, g.new_state::{state}, g.output, g.new_error, g.story, g.said
), kept AS (
    INSERT INTO {history} ({history_columns})
    SELECT {history_values}
    FROM gone WHERE stay <> 0
), tallied AS (
    INSERT INTO {tallies} (slot, queue, type, state, count)
    SELECT slot, queue, type, new_state, count(*) FROM gone WHERE stay <> 0 GROUP BY 1, 2, 3, 4
) {next}
{answer}
