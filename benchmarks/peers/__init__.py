"""Windlass compared with other job queues: same machine, same server, same jobs, one run."""
