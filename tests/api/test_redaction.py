"""Arguments that are only the handler's business."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from windlass import InvalidInput, Windlass
from windlass.cli import main
from windlass.insight import job_details
from windlass.redaction import HIDDEN, hide_in_text


@pytest.fixture
def app(store_url: str) -> Iterator[Windlass]:
    app = Windlass(store_url)
    yield app
    app.close()


CARD = "4111 1111 1111 1111"


def test_it_is_not_shown_and_not_told(app: Windlass, store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    @app.task(redact=["card"], max_attempts=1)
    def charge(order: int, card: str) -> None:
        seen.append(card)
        raise ValueError(f"the bank refuses {card!r}")

    caplog.set_level(logging.DEBUG, logger="windlass")
    job = charge.enqueue(7, CARD)
    assert job_details(job)["input"] == {"order": 7, "card": HIDDEN}
    app.run_worker(until_idle=True)
    failed = app.require(job.id)
    assert (seen, failed.input) == ([CARD], {"order": 7, "card": CARD})
    assert failed.error is not None
    assert failed.error.message == f"the bank refuses '{HIDDEN}'"
    assert CARD not in json.dumps(job_details(failed))
    app.close()
    shown = CliRunner().invoke(main, ["jobs", "show", str(job.id), "--url", store_url])  # without the task
    assert shown.exit_code == 0
    assert HIDDEN in shown.output
    assert CARD not in shown.output
    assert CARD not in caplog.text


def test_an_option_of_one_job_does_not_uncover_it(app: Windlass) -> None:
    @app.task(redact=["secret"], timeout="1m")
    def task(secret: str) -> None: ...

    job = task.using(max_attempts=3, timeout=None).enqueue("hush, hush")
    assert job_details(app.require(job.id))["input"] == {"secret": HIDDEN}


def test_all_of_a_structure_is_found_in_a_text() -> None:
    given = {"login": {"user": "ada.l", "codes": [123456, True, "a"]}, "other": "ada.l"}
    text = "ada.l may not use 123456 or a; True"
    assert hide_in_text(text, given, ["login"]) == f"{HIDDEN} may not use {HIDDEN} or a; True"
    assert hide_in_text(text, given, []) == text


def test_a_name_that_is_no_argument_is_refused(app: Windlass) -> None:
    with pytest.raises(InvalidInput, match="no argument"):

        @app.task(redact=["nothing"])
        def task(secret: str) -> None: ...

    with pytest.raises(InvalidInput, match="list of names"):
        app.task(redact="secret")
