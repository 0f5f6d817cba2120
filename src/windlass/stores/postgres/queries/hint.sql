SELECT pg_notify('{channel}', text) FROM unnest(:texts::text[]) AS text
