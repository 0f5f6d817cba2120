DELETE FROM {history} WHERE rowid IN (SELECT rowid FROM {history} WHERE purge_at <= {now} LIMIT :limit)
RETURNING queue, type, state
