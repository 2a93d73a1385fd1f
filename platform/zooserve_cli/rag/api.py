"""The router's public HTTP API as the demo uses it: each answer with its time and what ran."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from zooserve.errors import BackendFailed, NotRunning

__all__ = ["Api", "QueryReading", "Ran", "Ranked", "Spoken"]

_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Ran:
    """One step: how long it took and which model, at which version, did it."""

    step: str
    milliseconds: float
    model: str
    version: str

    @property
    def space(self) -> str:
        """For an embedding: the coordinate system of its vectors."""
        return f"{self.model}@{self.version}"


@dataclass(frozen=True)
class QueryReading:
    """A question as `rag_query` reads it."""

    vector: list[float]
    injection: float
    flagged: bool
    ran: Ran


@dataclass(frozen=True)
class Ranked:
    """The order of reranked passages: their places and scores, best first."""

    places: list[int]
    scores: list[float]
    ran: Ran


@dataclass(frozen=True)
class Spoken:
    """A chat answer; `first` is the time to its first text."""

    text: str
    completion_tokens: int
    first: Ran
    whole: Ran


class Api:
    """Asks the router at `base_url`. Raises NotRunning when nobody answers there, BackendFailed for its refusals."""

    def __init__(self, base_url: str, transport: httpx.BaseTransport | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.Client(base_url=self.base_url, timeout=_TIMEOUT_S, transport=transport)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], Ran]:
        """The vectors of the texts, as bulk work that gives way to interactive callers."""
        body = {"model": "embed", "input": list(texts), "encoding_format": "float"}
        answer, ran = self._post("embed", "/v1/embeddings", body, {"x-zooserve-class": "bulk"})
        return [entry["embedding"] for entry in answer["data"]], ran

    def read_query(self, question: str) -> QueryReading:
        """The question's vector and whether it tries to take the prompt over."""
        answer, ran = self._post("rag_query", "/v1/rag_query", {"model": "rag_query", "input": question})
        entry = answer["data"][0]
        verdict = entry["prompt_injection"]
        return QueryReading(entry["embedding"], verdict["probability"], verdict["flagged"], ran)

    def rerank(self, question: str, passages: Sequence[str], top_n: int) -> Ranked:
        """The best passages for the question."""
        body = {"model": "rerank", "query": question, "documents": list(passages), "top_n": top_n}
        answer, ran = self._post("rerank", "/v2/rerank", body)
        results = answer["results"]
        return Ranked([entry["index"] for entry in results], [entry["relevance_score"] for entry in results], ran)

    def chat(self, messages: Sequence[dict[str, str]], max_tokens: int, on_text: Callable[[str], None]) -> Spoken:
        """A greedy answer, handed to `on_text` as it comes."""
        body = {
            "model": "chat",
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began = time.perf_counter()
        texts: list[str] = []
        first_ms, completion_tokens = 0.0, 0
        with self._reached(), self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
            self._require_ok("chat", response)
            for chunk in _chunks(response):
                if chunk.get("usage"):
                    completion_tokens = chunk["usage"]["completion_tokens"]
                for choice in chunk["choices"]:
                    if text := choice["delta"].get("content"):
                        first_ms = first_ms or _since(began)
                        texts.append(text)
                        on_text(text)
        whole = _ran("chat", _since(began), response)
        return Spoken("".join(texts), completion_tokens, Ran("first text", first_ms, whole.model, whole.version), whole)

    def _post(
        self, step: str, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> tuple[Any, Ran]:
        began = time.perf_counter()
        with self._reached():
            response = self._http.post(path, json=body, headers=headers)
        self._require_ok(step, response)
        return response.json(), _ran(step, _since(began), response)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as exc:
            raise BackendFailed(f"The router at {self.base_url} did not answer within {_TIMEOUT_S:.0f} s.") from exc
        except httpx.TransportError as exc:
            raise NotRunning(
                f"No router answers at {self.base_url} ({exc}). Start the platform with `zooserve up`, or name another "
                "with --router URL."
            ) from exc

    def _require_ok(self, step: str, response: httpx.Response) -> None:
        if response.status_code == 200:
            return
        raise BackendFailed(
            f"{step}: the router at {self.base_url} answered {response.status_code}: {_words(response)}"
        )


def _chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if data == line or data == "[DONE]":
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise BackendFailed(f"chat: the answer broke off: {chunk['error']['message']}")
        yield chunk


def _words(response: httpx.Response) -> str:
    """What the error says, whichever dialect it speaks."""
    try:
        body = response.json()
    except ValueError:
        return response.text[:200]
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _ran(step: str, milliseconds: float, response: httpx.Response) -> Ran:
    headers = response.headers
    return Ran(step, milliseconds, headers.get("x-zooserve-model", "?"), headers.get("x-zooserve-version", "?"))


def _since(began: float) -> float:
    return 1000 * (time.perf_counter() - began)
