DELETE FROM {keys} WHERE ends_at <= {now}
