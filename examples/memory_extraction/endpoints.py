"""An extractor and an embedder that call an endpoint with OpenAI's protocol. They need httpx.

If an endpoint is busy or down, the job is retried: after the endpoint's Retry-After, or by the job's backoff. If an
answer cannot be used, the job fails, and its error shows the answer.
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
LONGEST_WAIT_SECONDS = 3600.0  # the limit of a longer Retry-After
INSTRUCTIONS = """\
You are given one exchange between a user and an assistant. List everything worth remembering about the user: facts,
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
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=2000, pattern=r"^[^\x00]*\Z")]  # databases refuse NUL


class Found(msgspec.Struct):
    memories: list[FoundMemory]


class Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class Embeddings(msgspec.Struct):
    data: list[Embedding]


class Endpoint:
    """Posts JSON, and reads the answer as a struct."""

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
            raise Retry(f"{where} answered {response.status_code}", after=_retry_after(response))
        if response.status_code != 200:
            raise Fail(f"{where} answered {response.status_code}: {response.text[:200]!r}")
        return read(response.content, shape, where)


def read(content: bytes | str, shape: type[Answer], where: str) -> Answer:
    try:
        return msgspec.json.decode(content, type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Fail(f"{where} gave an answer that cannot be used ({error}): {content[:200]!r}") from None


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds of the header Retry-After. None means: use the job's backoff."""
    header = response.headers.get("Retry-After", "")
    return min(float(header), LONGEST_WAIT_SECONDS) if header.isascii() and header.isdecimal() else None


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
            raise Fail(f"{self.endpoint.url} did not return {len(texts)} vectors of {self.dimensions} numbers")
        try:
            return [normalised(vector) for vector in vectors]
        except ValueError as error:
            raise Fail(f"{self.endpoint.url}: {error}") from None
