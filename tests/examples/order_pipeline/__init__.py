"""The order pipeline: chains, shown in a shop, on each of the three stores."""
