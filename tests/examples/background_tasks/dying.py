"""A replica that comes as far as the task of the group "hold", says so, and stays there until it is killed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.background_tasks.memory import VECTOR_STORE_DELETE, MemoryService
from examples.background_tasks.processor import Processor
from examples.background_tasks.settings import Settings
from windlass import Windlass

url, folder = sys.argv[1:]
app = Windlass(url)
service = MemoryService(app, Path(folder), Settings().batch_size)
delete = service.handlers[VECTOR_STORE_DELETE]


def delete_or_hold(body: Mapping[str, Any]) -> None:
    if body["group"] == "hold":
        print("holding", flush=True)
        threading.Event().wait()
    delete(body)


Processor(app, {VECTOR_STORE_DELETE: delete_or_hold}, Settings()).run()
