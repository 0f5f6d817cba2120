"""Background tasks of a service that keeps memories: they clean up and repair its vector store, and retry for ever.

`tasks` creates the tasks, `processor` runs them, `settings` has the intervals. `memory` is the service, with its own
`entries` and a `vector_store` that may be down.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # the program configures logging, as __main__ does
