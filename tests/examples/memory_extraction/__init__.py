"""The memory extraction queue."""
