"""For the shell: `windlass worker examples.order_pipeline.program:app`, on the database that $WINDLASS_URL names."""

from __future__ import annotations

from .pipeline import Pipeline

app = Pipeline().app
