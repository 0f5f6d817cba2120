"""The unit of systemd and the deployment of Kubernetes start a worker that exists, and leave it time to stop."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from windlass.cli.worker import worker
from windlass.duration import to_seconds

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "run-workers.md").read_text()
SPARE_SECONDS = 6  # beside the grace


def command_of_systemd() -> list[str]:
    line = re.search(r"^ExecStart=\S+/windlass worker (.*)$", PAGE, re.MULTILINE)
    assert line
    return shlex.split(line[1])


def command_of_kubernetes() -> list[str]:
    line = re.search(r'args: \["windlass", "worker", (.*)\]$', PAGE, re.MULTILINE)
    assert line
    return re.findall(r'"([^"]*)"', line[1])


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        (command_of_systemd(), r"TimeoutStopSec=(\d+)"),
        (command_of_kubernetes(), r"terminationGracePeriodSeconds: (\d+)"),
    ],
    ids=["systemd", "kubernetes"],
)
def test_it_has_time_to_stop(command: list[str], setting: str) -> None:
    context: click.Context = worker.make_context("worker", command)
    seconds = re.search(setting, PAGE)
    assert seconds
    assert int(seconds[1]) >= to_seconds(context.params["grace"]) + SPARE_SECONDS
