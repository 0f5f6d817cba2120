"""Enqueues jobs from a process of its own; the store comes by $WINDLASS_URL."""

from __future__ import annotations

import sys

from windlass import Windlass

app = Windlass()
for number in range(int(sys.argv[1])):
    app.enqueue("count", {"n": number})
app.store.wakeup.flush(30)
app.close()
