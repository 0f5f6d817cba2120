DELETE FROM {keys}
WHERE tenant = :tenant AND scope IN (:unique_scope, {any_type}) AND key = :unique_key AND ends_at <= {now}
