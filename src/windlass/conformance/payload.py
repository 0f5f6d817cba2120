"""Payloads, names, keys and errors come back exactly as they were stored."""

from __future__ import annotations

import json

import pytest

from ..outcome import Fail
from ..policy import Policy
from ..unique import Unique
from .bench import BY_NAME, Bench, new_job

TEXTS = {
    "numbers": '{"a":1.0,"b":1e22,"c":0.1,"d":-0.0,"e":9223372036854775807,"f":-9223372036854775808,"g":5e-324}',
    "order": '{"z":1,"a":{"y":2,"b":[3,1,2]},"m":null}',
    "spaces": '{ "a" :\t[ 1,\n 2 ] }',
    "unicode": '{"日本":"é \u2028 🎉 \U0010ffff \x7f","":""}',
    "escapes": r'{"a":"\u00e9\n\t\"\\\/\ud83c\udf89"}',
    "syntax": r"""{"a":"%s %(x)s :name ::cast {now} $1 $$x $set ? ' \" -- /* ; \\x"}""",
    "long": json.dumps({"text": "x" * 300_000}),
    "deep": '{"a":' * 60 + "1" + "}" * 60,
    "scalars": '[true,false,null,"",0,[],{}]',
}

NAMES = ["it's", 'say "so"', "a.b.$c", "$set", "%s %(x)s", ":name", "{now}", "back\\slash", "日本 🎉", " ", "x" * 200]


class Payloads:
    @pytest.mark.parametrize("name", TEXTS)
    @pytest.mark.parametrize("count", [1, 30])
    def test_the_input_comes_out_as_it_went_in(self, bench: Bench, name: str, count: int) -> None:
        bench.enqueue(*(new_job(input=TEXTS[name]) for _ in range(count)))
        assert {job.input_json for job in bench.find()} == {TEXTS[name]}
        claimed = bench.claim(count)
        assert {held.job.input_json for held in claimed} == {TEXTS[name]}
        bench.accept(*(held.completes() for held in claimed))
        assert {job.input_json for job in bench.find(state="completed")} == {TEXTS[name]}

    @pytest.mark.parametrize("name", TEXTS)
    def test_the_output_comes_out_as_it_went_in(self, bench: Bench, name: str) -> None:
        held = bench.hold()
        bench.accept(held.completes(TEXTS[name]))
        assert bench.look(held).output_json == TEXTS[name]

    def test_an_input_is_the_same_after_a_replacement_and_after_a_retry(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace")
        bench.add(unique=unique)
        bench.enqueue_one(unique=unique, input=TEXTS["numbers"])
        held = bench.claim_one()
        bench.accept(held.ends("failed"))
        bench.retry(held)
        assert bench.look(held).input_json == TEXTS["numbers"]

    @pytest.mark.parametrize("message", [*NAMES, "two\nlines", "x" * 9000, "\x1b[31m"])
    def test_an_error_is_kept_to_the_letter(self, bench: Bench, message: str) -> None:
        held = bench.hold()
        bench.accept(held.raises(Fail(message)))
        error = bench.look(held).error
        assert error is not None
        assert error.message == message


class Names:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_name_is_data_and_never_syntax(self, bench: Bench, name: str) -> None:
        unique = Unique(name, until="claimed")
        bench.add(type="other", queue=name)
        job = bench.add(type=name, queue=name, tenant=name, unique=unique, labels=json.dumps({name: name}), **BY_NAME)
        assert not bench.enqueue_one(type=name, unique=unique, tenant=name).created
        assert bench.find(type=name, queue=name, tenant=name) == [job]
        bench.run(lambda: bench.store.pause(name))
        assert bench.run(bench.store.paused) == bench.run(bench.store.live_queues) == [name]
        bench.run(lambda: bench.store.resume(name))
        policy = Policy(max_attempts=7)
        (held,) = bench.claim(queue=name, types=[name], worker=name, policies={name: policy})
        assert (held.job.worker, held.job.policy, held.job.labels) == (name, policy, {name: name})
        bench.accept(held.completes())
        assert bench.look(job).unique_key == name
        assert [(one.queue, one.type) for one in bench.counts().tallies if one.state == "completed"] == [(name, name)]

    def test_names_that_differ_in_case_or_spaces_are_different(self, bench: Bench) -> None:
        for name in ("a", "A", " a", "a "):
            bench.add(queue=name, type=name, unique=Unique(name))
        assert len(bench.claim(queue="a", types=["a"])) == 1
        assert len(bench.find(type="A")) == 1
