"""What every store must do, as tests: for the three that are here, and for one that you write.

    import pytest
    from windlass.conformance import Conformance

    class TestMyStore(Conformance):
        @pytest.fixture
        def store(self, tmp_path):
            store = MyStore(tmp_path / "jobs")
            yield store
            store.wakeup.close()
            store.connections.close()

One file for each operation. The tests use nothing but the contract in `windlass.stores.store`: a store is driven
through its `connections`, and time passes by its `clock`. They need pytest, and nothing else of Windlass needs them.
"""

from __future__ import annotations

import pkgutil

import pytest

# Before they are imported, so that a failed assert shows its values here as it does in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from .suite import Conformance  # noqa: E402

__all__ = ["Conformance"]
