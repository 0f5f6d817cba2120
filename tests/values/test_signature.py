"""Arguments and results go in and come out as the signature says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import types
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidInput
from windlass.signature import Signature

from .kinds import (
    IDENTITY,
    NOON,
    Attempt,
    Blob,
    Circle,
    Colour,
    Continue,
    Item,
    Level,
    Mood,
    Node,
    Numbers,
    Odd,
    Options,
    Order,
    Pair,
    Point,
    Spot,
    Square,
    User,
    one,
)

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]

ORDER = Order(IDENTITY, NOON, [Item("a", Decimal("1.10"), {"new"})])

TYPED = [
    (int, 2**63 - 1),
    (float, 0.1),
    (str, "é"),
    (bool, True),
    (None, None),
    (int | None, None),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset("ab")),
    (dict[str, float], {"a": 1.5}),
    (Literal["a", "b"], "b"),
    (Annotated[int, msgspec.Meta(gt=0)], 1),
    (Annotated[int, pydantic.Field(gt=0)], 1),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Mood, Mood.CALM),
    (Mood | None, Mood.CALM),
    (list[Mood], [Mood.CALM]),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+30")),
    (UUID, IDENTITY),
    (datetime, NOON),
    (datetime, NOON.astimezone(timezone(timedelta(hours=-3, minutes=-30)))),
    (datetime, datetime(1880, 1, 1, tzinfo=timezone(timedelta(minutes=53, seconds=28)))),
    (datetime, datetime(1, 1, 1, tzinfo=UTC)),
    (datetime, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    (date, date(2024, 5, 1)),
    (time, time(12, 30, 1)),
    (timedelta, timedelta(days=3, microseconds=1)),
    (timedelta, timedelta(days=-3, microseconds=1)),
    (bytes, b"\0\xff"),
    (bytes | None, b"\0\xff"),
    (list[bytes], [b"a", b"b"]),
    (Blob, Blob(b"\0\xff")),
    (Item, Item("a", Decimal("1.10"), {"new"})),
    (Order, ORDER),
    (Node, Node(1, Node(2))),
    (dict[str, Order], {"a": ORDER}),
    (Point, Point(1, 2)),
    (Circle | Square, Square(2.0)),
    (Circle, Circle(1.0, "big")),
    (Pair, Pair(1, 2)),
    (Spot, Spot(1, 2)),
    (Options, {"verbose": True}),
    (User, User(id=1, eMail="a@b", born=date(2000, 1, 1), seen=NOON)),
    (User | None, User(id=1, eMail="a@b")),
    (list[User], [User(id=1, eMail="a@b")]),
    (Numbers, Numbers([1, 2])),
    (Any, {"a": [1, None]}),
]


@pytest.mark.parametrize(("kind", "value"), TYPED)
def test_goes_in_and_comes_out_typed(kind, value):
    signature = one(kind)
    for text in (
        signature.encode_arguments((value,), {}),
        signature.encode_arguments((), {"value": value}),
        signature.encode_object({"value": value}),
    ):
        result = signature.decode_arguments(text)["value"]
        assert result == value
        assert type(result) is type(value)
        assert signature.encode_object(json.loads(text)) == text  # and as JSON from outside
    result = signature.decode_result(signature.encode_result(value))
    assert result == value
    assert type(result) is type(value)


@given(st.datetimes(timezones=st.timezones(), min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29)))
def test_a_moment_stays_the_same_moment(moment):
    signature = one(datetime)
    assert signature.decode_result(signature.encode_result(moment)) == moment.astimezone(UTC)


@given(st.timedeltas())
def test_a_length_stays_the_same_length(length):
    signature = one(timedelta)
    assert signature.decode_result(signature.encode_result(length)) == length


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        (float, 3, 3.0),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Point, {"x": 1}, Point(1)),
        (Item, {"sku": "a", "price": "1"}, Item("a", Decimal(1))),
        (Decimal, 1, Decimal(1)),
        (Decimal, 0.1, Decimal("0.1")),
        (datetime, "2024-05-01T12:30:15.00025Z", NOON),
        (Mood, "calm", Mood.CALM),
        (User, {"id": 1, "email": "a@b"}, User(id=1, eMail="a@b")),
        (User, {"id": 1, "eMail": "a@b"}, User(id=1, eMail="a@b")),
        (dict[int, str], {"1": "a"}, {1: "a"}),
    ],
)
def test_json_semantics(kind, value, result):
    signature = one(kind)
    assert signature.decode_arguments(signature.encode_arguments((value,), {})) == {"value": result}


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (int, "42", "task: value: Expected `int`, got `str`"),
        (int, 1.5, "Expected `int`, got `float`"),
        (int, True, "Expected `int`, got `bool`"),
        (int, None, "Expected `int`, got `null`"),
        (str, 42, "Expected `str`, got `int`"),
        (str, b"abc", "bytes come back"),
        (Blob | None, {"data": "%%%"}, "value.data: Invalid base64"),
        (list[int], [1, "a"], r"task: value\[1\]: Expected `int`"),
        (Annotated[int, msgspec.Meta(gt=0)], 0, "Expected `int` >= 1"),
        (Literal["a"], "b", "Invalid enum value 'b'"),
        (Mood, "angry", "Invalid enum value 'angry'"),
        (UUID, "x", "Invalid UUID"),
        (Item, {"sku": "a"}, "value: Object missing required field `price`"),
        (
            Order,
            {"id": str(IDENTITY), "at": "2024-05-01T12:00:00", "items": []},
            "value.at: a datetime needs a timezone",
        ),
        (datetime, "2024-05-01T12:00:00", "value: a datetime needs a timezone"),
        (Decimal, "NaN", "value: NaN is not JSON"),
        (list[str], [b"a"], "bytes come back"),
        (dict[str, Any], {"a": b"a"}, "bytes come back"),
        (User, {"id": "1", "email": "a"}, "value: User: id: Input should be a valid integer"),
        (User, {"id": 1, "email": "a", "role": "x"}, "role: Extra inputs are not permitted"),
        (subprocess.Popen, "x", "cannot be read from JSON"),
    ],
)
def test_what_does_not_fit_the_annotation_is_refused(kind, value, reason):
    with pytest.raises(InvalidInput, match=reason):
        one(kind).encode_arguments((value,), {})
    with pytest.raises(InvalidInput, match=reason):
        one(kind).encode_object({"value": value})


def test_bytes_beside_bytes_are_counted():
    def task(known: bytes, unknown: Any) -> None: ...

    signature = Signature(task, Attempt)
    assert signature.decode_arguments(signature.encode_arguments((b"a", "b"), {})) == {"known": b"a", "unknown": "b"}
    with pytest.raises(InvalidInput, match="bytes come back"):
        signature.encode_arguments((b"a", b"b"), {})
    with pytest.raises(InvalidInput, match="bytes come back"):
        signature.encode_arguments(("YQ==", b"b"), {})


def greet(attempt: Attempt, name: str, times: int = 1, *, loud: bool = False) -> str:
    return name


def test_binds_as_the_call_would():
    signature = Signature(greet, Attempt)
    assert signature.injected_name == "attempt"
    assert signature.encode_arguments(("ann",), {}) == '{"name":"ann"}'
    assert signature.encode_arguments(("ann", 2), {"loud": True}) == '{"name":"ann","times":2,"loud":true}'
    assert signature.encode_object({"loud": True, "name": "ann"}) == '{"loud":true,"name":"ann"}'
    assert signature.decode_arguments('{"loud":true,"name":"ann"}') == {"name": "ann", "loud": True}


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, "greet: missing a required argument: 'name'"),
        (("ann", 1, 2), {}, "greet: too many positional arguments"),
        (("ann",), {"name": "bob"}, "greet: multiple values for argument 'name'"),
        (("ann",), {"colour": 1}, "greet: got an unexpected keyword argument 'colour'"),
        (("ann",), {"attempt": None}, "greet: got an unexpected keyword argument 'attempt'"),
        ((), {1: 2}, "greet: "),
    ],
)
def test_what_the_call_would_refuse_is_refused(args, kwargs, reason):
    with pytest.raises(InvalidInput, match=reason):
        Signature(greet, Attempt).encode_arguments(args, kwargs)


@pytest.mark.parametrize("junk", [None, [], "name", 7])
def test_the_input_by_name_is_an_object(junk):
    with pytest.raises(InvalidInput, match="greet: the input is an object"):
        Signature(greet, Attempt).encode_object(junk)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name":"ann","colour":"red"}', "greet: Object contains unknown field `colour`"),
        ('{"times":1}', "greet: Object missing required field `name`"),
        ('{"name":1}', "greet: name: Expected `str`, got `int`"),
        ("[]", "greet: Expected `object`, got `array`"),
        ("{", "greet: Input data was truncated"),
    ],
)
def test_a_payload_of_another_version_is_refused(text, reason):
    with pytest.raises(InvalidInput, match=reason):
        Signature(greet, Attempt).decode_arguments(text)


def test_no_parameters():
    def task() -> None: ...

    signature = Signature(task, Attempt)
    assert signature.injected_name is None
    assert signature.encode_arguments((), {}) == "{}"
    assert signature.decode_arguments("{}") == {}


def test_extra_arguments_by_name():
    def task(attempt: Attempt, at: datetime, **rest: UUID) -> None: ...

    signature = Signature(task, Attempt)
    given = {"at": NOON, "one": IDENTITY}
    assert signature.decode_arguments(signature.encode_arguments((), given)) == given
    assert signature.decode_arguments(signature.encode_arguments((NOON,), {})) == {"at": NOON}
    with pytest.raises(InvalidInput, match=r"task: .*Invalid UUID"):
        signature.encode_arguments((NOON,), {"one": "x"})
    with pytest.raises(InvalidInput, match="'attempt' is given by the worker"):
        signature.encode_arguments((NOON,), {"attempt": IDENTITY})
    with pytest.raises(InvalidInput, match="'attempt' is given by the worker"):
        signature.decode_arguments(f'{{"at":"{NOON.isoformat()}","attempt":"{IDENTITY}"}}')
    with pytest.raises(InvalidInput, match="keys are strings"):
        signature.encode_object({"at": NOON, 1: IDENTITY})  # type: ignore[dict-item]


def test_what_cannot_go_by_name_is_refused_at_decoration():
    def variable(*names: str) -> None: ...
    def positional(name: str, /) -> None: ...
    def twice(one: Attempt, two: Attempt) -> None: ...
    def ambiguous(when: str | datetime) -> None: ...
    def odd(value: Odd) -> None: ...

    cases: list[tuple[Callable[..., Any], str]] = [
        (variable, r"variable: arguments go by name, `\*names: "),
        (positional, "positional: arguments go by name"),
        (twice, "twice: one and two are both the Attempt"),
        (ambiguous, "ambiguous: when: this annotation cannot be read from JSON: .*more than one str-like"),
        (odd, "odd: value: this annotation cannot be read from JSON: Enums must"),
    ]
    for function, reason in cases:
        with pytest.raises(InvalidInput, match=reason):
            Signature(function, Attempt)


def test_the_injected_parameter_is_found():
    def plain(name: str, attempt: Attempt) -> None: ...
    def optional(name: str, attempt: Attempt | None = None) -> None: ...
    def annotated(name: str, attempt: Annotated[Attempt, "x"]) -> None: ...

    async def coroutine(name: str, *, attempt: Attempt) -> None: ...

    for function in (plain, optional, annotated, coroutine):
        signature = Signature(function, Attempt)
        assert signature.injected_name == "attempt"
        assert signature.encode_arguments(("ann",), {}) == '{"name":"ann"}'


def test_the_injected_type_may_be_imported_for_the_type_checker_only():
    namespace: dict[str, Any] = {}
    exec("from __future__ import annotations\ndef task(attempt: Attempt, name: str): ...", namespace)
    assert Signature(namespace["task"], Attempt).injected_name == "attempt"


def test_an_annotation_that_cannot_be_resolved_counts_as_any():
    def task(attempt: Attempt, value: Missing, other: int) -> Missing: ...

    signature = Signature(task, Attempt)
    assert signature.unresolved == ["value"]
    assert signature.injected_name == "attempt"
    assert signature.decode_arguments(signature.encode_arguments(([1], 2), {})) == {"value": [1], "other": 2}
    with pytest.raises(InvalidInput, match="other: Expected `int`"):
        signature.encode_arguments((1, "x"), {})
    assert signature.decode_result(signature.encode_result({"a": 1})) == {"a": 1}


def test_local_names_help_to_resolve():
    @dataclass
    class Local:
        x: int

    def task(value: Local) -> None: ...

    signature = Signature(task, Attempt, local_names=locals())
    assert signature.decode_arguments(signature.encode_arguments((Local(1),), {})) == {"value": Local(1)}


def test_a_class_may_be_defined_after_the_task():
    module: dict[str, Any] = {"__name__": "later"}
    exec("from __future__ import annotations\ndef task(value: Later): ...", module)
    signature = Signature(module["task"], Attempt)
    assert signature.unresolved == ["value"]
    exec("import msgspec\nclass Later(msgspec.Struct): x: int", module)
    assert signature.decode_arguments('{"value":{"x":1}}')["value"].x == 1


def test_a_name_inside_a_class_may_be_defined_after_the_task():
    module = types.ModuleType("inner_later")
    sys.modules["inner_later"] = module
    module.__dict__["dataclass"] = dataclass
    exec("@dataclass\nclass Outer:\n  inner: 'Inner'\ndef task(value: Outer): ...", module.__dict__)
    signature = Signature(module.__dict__["task"], Attempt)
    with pytest.raises(InvalidInput, match=r"task: value: this annotation cannot be read from JSON: .*Inner"):
        signature.decode_arguments('{"value":{"inner":1}}')
    exec("Inner = int", module.__dict__)
    assert signature.decode_arguments('{"value":{"inner":1}}')["value"].inner == 1


def test_no_annotations_at_all():
    def task(a, b=2): ...

    signature = Signature(task, Attempt)
    assert signature.decode_arguments(signature.encode_arguments(([1],), {})) == {"a": [1]}


def test_none_fits_where_it_is_the_default():
    def task(a: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert Signature(task, Attempt).encode_arguments((None,), {}) == '{"a":null}'


def test_names_that_python_allows():
    def task(self, cls, type, __x, p1, __struct_fields__, é): ...

    signature = Signature(task, Attempt, name="other")
    text = signature.encode_arguments((1, 2, 3, 4, 5, 6, 7), {})
    assert list(signature.decode_arguments(text).values()) == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(InvalidInput, match="other: missing"):
        signature.encode_arguments((), {})


def test_the_limit_of_a_signature():
    signature = Signature(greet, Attempt, limit=20)
    with pytest.raises(InvalidInput, match=r"greet: .*more than the limit of 20"):
        signature.encode_arguments(("x" * 20,), {})
    with pytest.raises(InvalidInput, match=r"greet: result: .*more than the limit of 20"):
        signature.encode_result("x" * 20)


# Results


def result_of(annotation: Any, value: object) -> Any:
    def task(): ...

    task.__annotations__ = {"return": annotation}
    signature = Signature(task, Attempt, control=(Continue,))
    return signature.decode_result(signature.encode_result(value))


@pytest.mark.parametrize(
    ("annotation", "value", "result"),
    [
        (Point | Continue, Point(1), Point(1)),
        (Point | Continue | None, None, None),
        (Continue, {"a": 1}, {"a": 1}),
        (Coroutine[Any, Any, Point], Point(1), Point(1)),
        (NoReturn, 1, 1),
        (subprocess.Popen, 1, 1),
        (str | datetime, "a", "a"),
        (float, 1, 1.0),
        (int | None, None, None),
        (object, {"a": 1}, {"a": 1}),
        (list[subprocess.Popen], [1], [1]),
        ("Point", Point(1), Point(1)),
        ("Nowhere", Point(1), {"x": 1, "y": 0}),
    ],
)
def test_results_come_out_typed_where_they_can(annotation, value, result):
    assert result_of(annotation, value) == result


def test_junk_in_a_result_is_refused_by_name():
    with pytest.raises(InvalidInput, match=r"task: result: \[0\]: nan is not JSON"):
        result_of(Any, [math.nan])
    with pytest.raises(InvalidInput, match="task: result: the value: bytes come back"):
        result_of(Any, b"a")
    with pytest.raises(InvalidInput, match="bytes come back"):
        result_of(str, b"a")
    with pytest.raises(InvalidInput, match="Expected `object`"):
        result_of(Point, b"a")


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (int, "text", "Expected `int`, got `str`"),
        (int, None, "Expected `int`, got `null`"),
        (int, True, "Expected `int`, got `bool`"),
        (int, 1.5, "Expected `int`, got `float`"),
        (None, 7, "Expected `null`, got `int`"),
        (Point, {"z": 1}, "missing required field `x`"),
        (list[int], [1, "2"], r"\[1\]: Expected `int`, got `str`"),
        (dict[str, Point], {"a": {"x": "1"}}, "Expected `int`, got `str`"),
        (Literal["a", "b"], "c", "Invalid enum value"),
        (User, {"id": "x"}, "User: id"),
        (Annotated[int, msgspec.Meta(gt=0)], 0, ">= 1"),
        (Point | Continue, "text", "Expected `object`"),
        (int | Continue, "text", "Expected `int`"),
        (Coroutine[Any, Any, int], "text", "Expected `int`"),
        ("Point", 1, "Expected `object`"),
    ],
)
def test_a_result_that_is_not_what_the_annotation_says_is_refused(annotation, value, reason):
    with pytest.raises(InvalidInput, match=f"task: result: .*{reason}"):
        result_of(annotation, value)
