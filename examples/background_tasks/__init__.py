"""A background task queue for a service that keeps memories: clean-up and repair of its vector store, retried for ever.

`tasks` creates them, `processor` runs them, `settings` says how often; `memory` is the service that needs them, with
its own `entries` and the `vector_store` that may be down.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # who wants to see the log says so, as __main__ does
