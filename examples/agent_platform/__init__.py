"""A platform of agents: messages, triggers, plans and remote agents. Each is a job in the database.

`jobs` enqueues. `agents`, `orchestrator`, `dispatch` and `maintenance` define the ten kinds of jobs, and `platform`
registers them. `web` is the HTTP API. `model` is a stand-in for a real model.
"""
