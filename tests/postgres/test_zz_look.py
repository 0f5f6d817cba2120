from uuid import uuid4
import pytest
from tests.postgres.test_plans import *  # noqa
from tests.postgres.test_plans import Scene, stale, scans, seq_scans
from windlass.stores.store import ClaimRequest
@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize("typed", [True, False])
def test_look(stale, mode, typed):
    op = stale.store.claim(ClaimRequest(queue="q1", limit=500, token=uuid4(), worker="w", prefetch=True, types=["t1"] if typed else None))
    next(op)
    nodes = stale.nodes(op.send([]), mode)
    assert ("Index Scan", "windlass_jobs_ready") in scans(nodes) or ("Index Only Scan", "windlass_jobs_ready") in scans(nodes)
    assert not seq_scans(nodes)
    assert not [n for n in nodes if n["Node Type"] == "Sort"]
