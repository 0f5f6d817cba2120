"""A platform of agents: messages, triggers, plans and remote agents, each of them a job in the database.

`jobs` enqueues, `agents`, `orchestrator`, `dispatch` and `maintenance` have the ten kinds of jobs, `platform` puts them
together; `web` is what the world talks to. `model` is the part that would be intelligent.
"""
