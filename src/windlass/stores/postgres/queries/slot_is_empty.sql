SELECT NOT EXISTS (SELECT FROM {history} WHERE slot = :slot::smallint)
