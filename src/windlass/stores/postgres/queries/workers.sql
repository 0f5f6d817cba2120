SELECT details, started_at, heard_at FROM {workers} ORDER BY started_at, name
