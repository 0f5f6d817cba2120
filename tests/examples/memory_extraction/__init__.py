"""Behaviours 000.1 to 000.10: the memory extraction queue."""
