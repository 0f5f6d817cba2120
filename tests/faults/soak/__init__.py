"""A soak: workers, clients and faults, mixed, for as long as one likes; then the history is judged.

    python -m tests.faults.soak --store postgres --minutes 20

It starts a server of its own, so that a fault may befall all of it. `--faults` chooses among them, `--seed` replays the
choices of a run (what the machine does meanwhile is another matter). Exit code 1: something was lost, was done twice,
or hung.
"""
