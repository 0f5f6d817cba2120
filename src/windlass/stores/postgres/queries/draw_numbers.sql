-- Numbers for jobs of order keys, in the order of their batch: the INSERT sorts its rows in the order of their locks.
SELECT nextval('{seq}') FROM generate_series(1, :count::integer)
