INSERT INTO {schedules} (name, cron, timezone, catch_up, call, declared, declared_at, next_at)
VALUES (:name, :cron, :timezone, :catch_up, :call, :declared, {now}, :next_at)
ON CONFLICT (name) DO UPDATE SET
    cron = excluded.cron,
    timezone = excluded.timezone,
    catch_up = excluded.catch_up,
    call = excluded.call,
    declared = excluded.declared,
    declared_at = excluded.declared_at,
    next_at = CASE
        WHEN ({schedules}.cron, {schedules}.timezone) = (excluded.cron, excluded.timezone) THEN {schedules}.next_at
        ELSE excluded.next_at END
