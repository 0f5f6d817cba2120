-- Numbers for jobs of order keys, in the order of their batch: the INSERT sorts its rows by what they lock.
SELECT nextval('{seq}') FROM generate_series(1, :count::integer)
