"""The proof that a platform works: a first embedding and a first streamed chat, through the router."""

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from zooserve.catalogue import Catalogue, Model, Task
from zooserve.errors import ServerFailed

__all__ = ["Chat", "Embedding", "Proof", "prove"]

_TIMEOUT_S = 60.0
_SENTENCE = "The quick brown fox jumps over the lazy dog."
_QUESTION = "What is the capital of France?"


@dataclass(frozen=True)
class Embedding:
    """What the first embedding said."""

    model: str
    text: str
    dimensions: int
    first_values: tuple[float, ...]
    milliseconds: float


@dataclass(frozen=True)
class Chat:
    """What the first chat said."""

    model: str
    question: str
    answer: str
    first_piece_milliseconds: float
    milliseconds: float


@dataclass(frozen=True)
class Proof:
    """The first answers; None where the catalogue has no model of that task."""

    embedding: Embedding | None
    chat: Chat | None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


async def prove(address: str, catalogue: Catalogue, http: httpx.AsyncClient) -> Proof:
    """Ask the router at `address` for both. Raises ServerFailed if it does not answer as it should."""
    embed, chat = (_required(catalogue, task) for task in ("embed", "chat"))
    try:
        return Proof(
            embedding=await _embed(address, embed.name, http) if embed else None,
            chat=await _chat(address, chat.name, http) if chat else None,
        )
    except (httpx.HTTPError, ValueError, KeyError, IndexError) as exc:
        raise ServerFailed(f"router: it is ready, but its first answer failed: {exc!r}") from exc


def _required(catalogue: Catalogue, task: Task) -> Model | None:
    return next((model for model in catalogue.of_task(task) if model.required), None)


async def _embed(address: str, model: str, http: httpx.AsyncClient) -> Embedding:
    started = time.monotonic()
    body = {"model": model, "input": _SENTENCE}
    answer = await http.post(f"http://{address}/v1/embeddings", json=body, timeout=_TIMEOUT_S)
    answer.raise_for_status()
    vector = answer.json()["data"][0]["embedding"]
    return Embedding(model, _SENTENCE, len(vector), tuple(vector[:4]), 1000 * (time.monotonic() - started))


async def _chat(address: str, model: str, http: httpx.AsyncClient) -> Chat:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": 32,
        "temperature": 0,
        "stream": True,
    }
    started = time.monotonic()
    pieces: list[str] = []
    first = started
    async with http.stream("POST", f"http://{address}/v1/chat/completions", json=body, timeout=_TIMEOUT_S) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if piece := _piece(line):
                first = first if pieces else time.monotonic()
                pieces.append(piece)
    if not pieces:
        raise ValueError("the chat stream held no text")
    return Chat(model, _QUESTION, "".join(pieces), 1000 * (first - started), 1000 * (time.monotonic() - started))


def _piece(line: str) -> str:
    data = line.removeprefix("data: ")
    if data == line or data == "[DONE]":
        return ""
    event = json.loads(data)
    if "error" in event:
        raise ValueError(event["error"])
    choices = event.get("choices") or [{}]
    return choices[0].get("delta", {}).get("content") or ""
