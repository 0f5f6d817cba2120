"""The conformance suite: tests of the promises that every store makes. It also tests a store that you write.

    import pytest
    from windlass.conformance import Conformance

    class TestMyStore(Conformance):
        @pytest.fixture
        def store(self, tmp_path):
            store = MyStore(tmp_path / "jobs")
            yield store
            store.wakeup.close()
            store.connections.close()

There is one file for each operation. The tests use only the contract in `windlass.stores.store`: they drive the store
through its `connections`, and move time with its `clock`. They need pytest. No other part of Windlass needs them.
"""

from __future__ import annotations

import pkgutil

import pytest

# This comes before the import, so that a failed assert shows its values as it does in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from .suite import Conformance  # noqa: E402

__all__ = ["Conformance"]
