"""The order pipeline: the behaviours of the chain system (004), shown in a shop, on each of the three stores."""
