"""The service: it stores and evicts entries at once. If the vector store is down, tasks do its part later."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass import Job, Windlass

from .entries import Entries, Entry
from .processor import Handler
from .tasks import TaskRepository
from .vector_store import VectorStore, VectorStoreDown

VECTOR_STORE_DELETE = "vector_store_delete"
VECTOR_STORE_INDEX_RETRY = "vector_store_index_retry"

log = logging.getLogger(__name__)


class MoreToDo(Exception):
    """Work is left, so the task must run again. It is not a failure."""


class MemoryService:
    """Keeps its entries and its vectors in a folder, its tasks in the database of `app`."""

    def __init__(self, app: Windlass, folder: Path, batch_size: int) -> None:
        self.tasks = TaskRepository(app)
        self.entries = Entries(folder / "entries.db")
        self.vectors = VectorStore(folder / "vectors.db")
        self.batch_size = batch_size

    def remember(self, group: str, text: str) -> Entry:
        """Store an entry and index it. If that fails, create the one task that indexes all such entries."""
        entry = self.entries.add(group, text)
        if not self._index(entry):
            self.tasks.create(VECTOR_STORE_INDEX_RETRY, name=VECTOR_STORE_INDEX_RETRY)
        return entry

    def evict(self, group: str) -> Job:
        """Delete the vectors of a conversation group, by a task. The caller does not wait for it."""
        return self.tasks.create(VECTOR_STORE_DELETE, {"group": group})

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by the type of their tasks. A new type of task is one line here."""
        return {VECTOR_STORE_DELETE: self._delete_vectors, VECTOR_STORE_INDEX_RETRY: self._index_pending}

    def _delete_vectors(self, body: Mapping[str, Any]) -> None:
        self.vectors.delete(body["group"])

    def _index_pending(self, body: Mapping[str, Any]) -> None:
        for entry in self.entries.pending(self.batch_size):
            self._index(entry)
        left = self.entries.count_pending()
        if left:
            raise MoreToDo(f"{left} entries are not indexed yet")

    def _index(self, entry: Entry) -> bool:
        try:
            self.vectors.index(entry.group, entry.id, entry.text)
        except VectorStoreDown as error:
            log.warning("entry %d is not indexed: %s", entry.id, error)
            return False
        self.entries.mark_indexed(entry)
        return True
