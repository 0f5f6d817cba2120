"""The app of a worker process, from its environment: `windlass worker examples.agent_platform.worker:app`."""

from __future__ import annotations

import os

from .platform import Platform
from .settings import load_settings

platform = Platform(load_settings(os.environ))
app = platform.app
