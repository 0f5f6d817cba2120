"""Extractor and embedder behind any endpoint that speaks OpenAI's protocol. Needs httpx.

An endpoint that is busy or gone is Windlass's business: `Retry` says when it wants to be asked again, and else the
job's backoff does. An answer that cannot be used is a failure that says what came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import httpx
import msgspec

from windlass import Fail, Retry

from .embedders import Vector, normalised
from .extractors import Kind, Memory, Transaction

Answer = TypeVar("Answer", bound=msgspec.Struct)

BUSY = {408, 425, 429}
LONGEST_WAIT_SECONDS = 3600.0  # whatever Retry-After says
INSTRUCTIONS = """\
You are given one exchange between a user and an assistant. List what is worth remembering about the user: facts,
preferences, and standing instructions, each as one short sentence. Answer with JSON only, in this form:
{"memories": [{"kind": "fact" | "preference" | "instruction", "text": "..."}]}
An empty list is a good answer."""


class Message(msgspec.Struct):
    content: str


class Choice(msgspec.Struct):
    message: Message


class Chat(msgspec.Struct):
    choices: list[Choice]


class FoundMemory(msgspec.Struct):
    kind: Kind
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=2000, pattern=r"^[^\x00]*\Z")]  # no database takes NUL


class Found(msgspec.Struct):
    memories: list[FoundMemory]


class Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class Embeddings(msgspec.Struct):
    data: list[Embedding]


class Endpoint:
    """Posts JSON and reads an answer of a known shape."""

    def __init__(self, url: str, key: str = "", timeout_seconds: float = 30.0) -> None:
        self.url, self.timeout_seconds = url.rstrip("/"), timeout_seconds
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def post(self, path: str, body: object, shape: type[Answer]) -> Answer:
        where = f"{self.url}{path}"
        try:
            async with httpx.AsyncClient(timeout=self.timeout_seconds, headers=self._headers) as client:
                response = await client.post(where, json=body)
        except httpx.HTTPError as error:
            raise Retry(f"{where} cannot be reached: {type(error).__name__} {error}") from error
        if response.status_code in BUSY or response.status_code >= 500:
            raise Retry(f"{where} answered {response.status_code}", after=_wished_wait(response))
        if response.status_code != 200:
            raise Fail(f"{where} answered {response.status_code}: {response.text[:200]!r}")
        return read(response.content, shape, where)


def read(content: bytes | str, shape: type[Answer], where: str) -> Answer:
    try:
        return msgspec.json.decode(content, type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Fail(f"{where} gave an answer that cannot be used ({error}): {content[:200]!r}") from None


def _wished_wait(response: httpx.Response) -> float | None:
    """Seconds, as far as the header has some; None leaves it to the job's backoff."""
    wish = response.headers.get("Retry-After", "")
    return min(float(wish), LONGEST_WAIT_SECONDS) if wish.isascii() and wish.isdecimal() else None


class EndpointExtractor:
    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self.endpoint, self.model = endpoint, model

    async def extract(self, transaction: Transaction) -> list[Memory]:
        exchange = f"User: {transaction.prompt}\n\nAssistant: {transaction.completion}"
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": exchange}]
        body = {"model": self.model, "temperature": 0, "messages": messages}
        answer = await self.endpoint.post("/chat/completions", body, Chat)
        if not answer.choices:
            raise Fail(f"{self.endpoint.url} gave an answer that cannot be used: it has no choices")
        found = read(answer.choices[0].message.content, Found, self.endpoint.url)
        return [Memory(one.kind, one.text) for one in found.memories]


class EndpointEmbedder:
    def __init__(self, endpoint: Endpoint, model: str, dimensions: int) -> None:
        self.endpoint, self.model, self.dimensions = endpoint, model, dimensions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        body = {"model": self.model, "input": list(texts), "dimensions": self.dimensions}
        answer = await self.endpoint.post("/embeddings", body, Embeddings)
        vectors = [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]
        if [len(vector) for vector in vectors] != [self.dimensions] * len(texts):
            raise Fail(f"{self.endpoint.url}: not {len(texts)} vectors of {self.dimensions} numbers, as was asked for")
        try:
            return [normalised(vector) for vector in vectors]
        except ValueError as error:
            raise Fail(f"{self.endpoint.url}: {error}") from None
