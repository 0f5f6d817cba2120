"""The app for the shell: `windlass worker examples.order_pipeline.program:app`, on the database in $WINDLASS_URL."""

from __future__ import annotations

from .pipeline import Pipeline

app = Pipeline().app
