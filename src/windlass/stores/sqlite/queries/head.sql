SELECT {live_columns} FROM {jobs} AS j WHERE lane = 2 AND tenant = :tenant AND order_key = :order_key
