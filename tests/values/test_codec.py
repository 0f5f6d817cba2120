"""Payloads: JSON that every store can hold, and nothing else."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import types
from collections import OrderedDict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given

from windlass.codec import MAX_DEPTH, MAX_PAYLOAD_BYTES, decode, encode, read_text
from windlass.errors import InvalidInput

from .kinds import (
    IDENTITY,
    NOON,
    Circle,
    Colour,
    Item,
    Level,
    Mood,
    Node,
    Numbers,
    Odd,
    Order,
    Pair,
    Point,
    Ring,
    Spot,
    User,
    json_values,
    one,
    short,
)


def check_text(text: str) -> str:
    """As text from outside goes into the store."""
    return encode(read_text(text))


@given(json_values)
def test_json_comes_back_as_itself(value):
    text = encode(value)
    assert decode(text) == value
    assert json.loads(text) == value
    assert check_text(text) == text
    assert check_text(json.dumps(value, indent=2)) == text


@given(json_values)
def test_json_comes_back_through_a_signature(value):
    signature = one(Any)
    assert signature.decode_arguments(signature.encode_arguments((value,), {})) == {"value": value}
    assert signature.decode_result(signature.encode_result(value)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, 2), [1, 2]),
        ({7}, [7]),
        (frozenset(), []),
        (Spot(1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        ({Colour.RED: 1}, {"red": 1}),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Mood.CALM, "calm"),
        (Odd.ONE, [1, 2]),
        (type("Name", (str,), {})("ann"), "ann"),
        (type("Count", (int,), {})(3), 3),
        (type("Ratio", (float,), {})(0.5), 0.5),
        (NOON, "2024-05-01T12:30:15.000250+00:00"),
        (date(1, 1, 1), "0001-01-01"),
        (time(12, 30), "12:30:00"),
        (IDENTITY, str(IDENTITY)),
        (Decimal("1.10"), "1.10"),
        (Point(1), {"x": 1, "y": 0}),
        (Pair(1, 2), [1, 2]),
        (Circle(1.5), {"type": "circle", "r": 1.5}),
        (Item("a", Decimal(1)), {"sku": "a", "price": "1", "tags": []}),
        (Numbers([1, 2]), [1, 2]),
        (User(id=1, eMail="a@b"), {"id": 1, "email": "a@b", "born": None, "seen": None, "score": 0.0}),
    ],
)
def test_becomes_json(value, expected):
    assert json.loads(encode({"deep": [value]})) == {"deep": [expected]}


cycle: list[Any] = []
cycle.append(cycle)
loop = Node(1)
loop.next = loop
ring = Ring()
ring.next = ring
deep: list[Any] = []
for _ in range(MAX_DEPTH):
    deep = [deep]
early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
late = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))

JUNK = [
    (math.nan, "nan is not JSON"),
    (math.inf, "inf is not JSON"),
    (-math.inf, "-inf is not JSON"),
    (Decimal("NaN"), "NaN is not JSON"),
    (Decimal("-Infinity"), "Infinity is not JSON"),
    ("a\0b", "NUL"),
    ("\ud800", "surrogates"),
    (2**63, "64 bits"),
    (-(2**63) - 1, "64 bits"),
    (10**5000, "64 bits"),
    ({1: "a"}, "keys are strings, not int"),
    ({None: "a"}, "keys are strings, not NoneType"),
    ({("a",): "a"}, "keys are strings, not tuple"),
    ({Level.HIGH: "a"}, "keys are strings, not Level"),
    (datetime(2024, 5, 1), "needs a timezone"),
    (early, "between the years 1 and 9999"),
    (late, "between the years 1 and 9999"),
    (b"abc", "bytes come back as bytes only where"),
    (bytearray(b"abc"), "bytes come back as bytes only where"),
    (cycle, "contains itself"),
    (loop, "contains itself"),
    (ring, "Ring: Circular reference"),
    (deep, "nested deeper than 200 levels"),
    (object(), "object cannot be stored as JSON"),
    (Item, "type cannot be stored as JSON"),
    (len, "cannot be stored as JSON"),
    ((n for n in "ab"), "generator cannot be stored as JSON"),
    (1j, "complex cannot be stored as JSON"),
    (User(id=1, eMail="x", seen=datetime(2024, 5, 1)), "needs a timezone"),
    (User(id=1, eMail="x", score=math.nan), "nan is not JSON"),
    (User(id=1, eMail="a\0"), "NUL"),
]


@pytest.mark.parametrize(("junk", "reason"), JUNK, ids=short)
def test_junk_is_refused_with_reason_and_path(junk, reason):
    with pytest.raises(InvalidInput, match=reason):
        encode(junk)
    with pytest.raises(InvalidInput, match=reason) as refusal:
        encode({"items": [1, {"price": junk}]})
    assert str(refusal.value).startswith("items[1].price")
    with pytest.raises(InvalidInput, match=reason):
        one(Any).encode_result(junk)
    with pytest.raises(InvalidInput, match=r"task: value"):
        one(Any).encode_arguments((junk,), {})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "the value: "),
        ([[math.nan]], "[0][0]: "),
        ({"a b": math.nan}, "['a b']: "),
        ({"a\0": 1}, r"['a\x00']: "),
        ({"\udfff": 1}, r"['\udfff']: "),
        (Order(uuid4(), NOON, [Item("a", Decimal("NaN"))]), "items[0].price: "),
        ([Circle(math.inf)], "[0].r: "),
        ({"user": User(id=1, eMail="x", score=math.inf)}, "user.score: "),
    ],
)
def test_the_path_names_the_culprit(value, path):
    with pytest.raises(InvalidInput) as refusal:
        encode(value)
    assert str(refusal.value).startswith(path)
    str(refusal.value).encode()


def test_nesting_up_to_the_limit_comes_back():
    text = encode(deep[0])
    assert decode(text) == deep[0]
    assert check_text(text) == text


def test_the_limit_is_in_bytes_and_can_be_raised():
    assert encode("é" * 3, limit=8) == '"ééé"'
    with pytest.raises(InvalidInput, match=r"8 bytes of JSON are more than the limit of 7.*Windlass\(max_payload=…\)"):
        encode("é" * 3, limit=7)
    with pytest.raises(InvalidInput, match="1,048,577 bytes"):
        encode("x" * (MAX_PAYLOAD_BYTES - 1))


def test_decode_by_type():
    assert decode('{"x": 1}', Point) == Point(1)
    assert decode(b"[1]", set[int]) == {1}
    assert decode('{"id": 1, "eMail": "a@b"}', User).email == "a@b"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("", Any, "truncated"),
        ("{", Any, "truncated"),
        ("nope", Any, "malformed"),
        ("NaN", Any, "malformed"),
        ("\ud800", Any, "surrogates"),
        (b"\xff", Any, "invalid"),
        ("[" * 100_000, Any, "recursion"),
        ('{"x": "1"}', Point, "x: Expected `int`, got `str`"),
        ('[{"x": 1}, {}]', list[Point], r"\[1\]|missing required field `x`"),
        ('[{"id": "1", "eMail": 3}]', list[User], "User: id: Input should be a valid integer; eMail: Input"),
        ("1", object.__class__, "cannot be read from JSON"),
        ('"calm"', Odd, "cannot be read from JSON"),
        ('"x"', subprocess.Popen, "cannot be read from JSON"),
    ],
    ids=short,
)
def test_decode_refuses(text, kind, reason):
    with pytest.raises(InvalidInput, match=reason):
        decode(text, kind)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' appears more than once"),
        ('{"a": 1, "\\u0061": 1}', "the key 'a' appears more than once"),
        ("[NaN]", r"\[0\]: nan is not JSON"),
        ('{"a": -Infinity}', "a: -inf is not JSON"),
        ('{"a": 1e999}', "a: inf is not JSON"),
        ('{"a": 9223372036854775808}', "a: the integer needs more than 64 bits"),
        ('{"a": -' + "9" * 10_000 + "}", "a: the integer needs more than 64 bits"),
        ('{"a": "\\u0000"}', "a: text must not contain NUL"),
        ('{"a\\u0000": 1}', "NUL"),
        ('["\\ud800"]', "surrogates"),
        ('["\udc80"]', "surrogates"),
        ('["a\nb"]', "not JSON: Invalid control character"),
        ("", "not JSON"),
        ("{'a': 1}", "not JSON"),
        ("[1,]", "not JSON"),
        ("01", "not JSON"),
        ('"' + "x" * MAX_PAYLOAD_BYTES + '"', "more than the limit"),
        ("[" * 500 + "]" * 500, "nested deeper than 200 levels"),
        ("[" * 100_000, "nested deeper than 200 levels"),
    ],
    ids=short,
)
def test_text_from_outside_is_refused(text, reason):
    with pytest.raises(InvalidInput, match=reason):
        check_text(text)


def test_text_from_outside_is_normalised():
    assert check_text(' { "b" : 1.50, "a" : "\\u00e9" } ') == '{"b":1.5,"a":"é"}'


def test_pydantic_is_not_imported():
    program = "import sys, windlass.codec as c; c.encode({'a': [1]}); sys.exit('pydantic' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
