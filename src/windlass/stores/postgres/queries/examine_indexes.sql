-- The valid indexes of this queue. Those of partitions have no names of ours.
SELECT c.relname FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = '{schema}' AND i.indisvalid
