"""Benchmarks of Windlass: `make bench`."""
