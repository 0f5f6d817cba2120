"""What Windlass costs, measured: `make bench`."""
