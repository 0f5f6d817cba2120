DELETE FROM {keys} WHERE tenant = :tenant AND key = :unique_key AND ends_at <= {now}
