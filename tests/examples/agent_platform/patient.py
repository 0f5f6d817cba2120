"""A model that waits for a file before it answers: whoever runs a turn with it holds that turn until then."""

from __future__ import annotations

import os
import time
from pathlib import Path

from examples.agent_platform.model import Reply, StandIn


class Patient(StandIn):
    def answer(self, text: str) -> Reply:
        while not Path(os.environ["PATIENT_UNTIL"]).exists():
            time.sleep(0.02)
        return super().answer(text)
