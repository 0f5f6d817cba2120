"""`python -m windlass` is `windlass`."""

from .cli import main

main()
