"""The whole router over a zoo that computes something checkable, and a vocabulary of one token per word."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from zooserve.catalogue import Catalogue, load_catalogue
from zooserve.errors import BadInput, ServingError
from zooserve.settings import RouterSettings, Settings
from zooserve.triton.tensors import InferenceAnswer, Tensor
from zooserve_ensembles import vocabulary as words
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.app import bare_app, wired
from zooserve_router.backends.wire import RawAnswer
from zooserve_router.backends.zoo import Inference, Relayed, error_of, is_refusal
from zooserve_router.failures import failure_of
from zooserve_router.services import Services
from zooserve_router.stages import Ensemble
from zooserve_router.vocabulary import Vocabulary, WordList

DIMENSIONS = 384
VOCABULARY_SIZE = 1000
CLS, SEP = 2, 3
LABELS = ["de", "en"]
"""Of the models whose labels come with their weights."""
PROBABILITIES = {"classify": [0.9, 0.1, 0.6, 0.2, 0.3, 0.4], "language": [0.3, 0.7], "injection": [0.4]}


def rows_of(tensor: Tensor) -> list[bytes]:
    """The rows of a BYTES tensor."""
    rows, offset = [], 0
    while offset < len(tensor.data):
        end = offset + 4 + int.from_bytes(tensor.data[offset : offset + 4], "little")
        rows.append(tensor.data[offset + 4 : end])
        offset = end
    return rows


def texts_of(tensor: Tensor) -> list[str]:
    """The texts of a BYTES tensor."""
    return [row.decode() for row in rows_of(tensor)]


def vector_of(text: str) -> np.ndarray:
    """A vector that only this text has."""
    digest = hashlib.sha256(text.encode()).digest()
    return np.resize(np.frombuffer(digest, np.uint8).astype(np.float32) / 255, DIMENSIONS)


@dataclass
class FakeZoo:
    """Answers like the zoo's ensembles; holds answers back while `open` is clear; raises `fault` if there is one.

    Both are for all Triton models, `held` and `faults` for those that they name.
    """

    asked: list[Inference] = field(default_factory=list)
    sent: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    fault: ServingError | None = None
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    faults: dict[str, Exception] = field(default_factory=dict)
    refused: bytes = b"refuse me"
    """An image or file that holds this is refused as a stage refuses it."""
    answer: RawAnswer = field(default_factory=lambda: RawAnswer(200, {"content-type": "application/json"}, b"{}"))
    is_mistrusted: bool = False
    busy: int = 0
    most_busy: int = 0

    async def infer(self, wanted: Inference) -> InferenceAnswer:
        self.asked.append(wanted)
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            await self.open.wait()
            if wanted.model in self.held:
                await self.held[wanted.model].wait()
            await asyncio.sleep(0)
            if fault := self.fault or self.faults.get(wanted.model):
                raise fault
            return InferenceAnswer(wanted.model, "1", self._outputs(wanted))
        finally:
            self.busy -= 1

    async def relay(self, wanted: Relayed) -> RawAnswer:
        path = f"/v2/models/{wanted.model}/infer"
        answer = await self.send("POST", path, wanted.headers, wanted.body, wanted.timeout_s)
        if answer.status != 200 and not is_refusal(answer):
            raise error_of(failure_of(Ensemble.single(wanted.model), json.loads(answer.body)["error"]))
        return answer

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer:
        self.sent.append((method, path, headers, body))
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        return self.answer

    def _outputs(self, wanted: Inference) -> dict[str, np.ndarray]:
        if wanted.inputs[0].name == "input_ids":
            ids = np.frombuffer(wanted.inputs[0].data, "<i8").reshape(wanted.inputs[0].shape)
            vectors = np.zeros((len(ids), DIMENSIONS), dtype=np.float32)
            vectors[:, : ids.shape[1]] = ids
            return {"sentence_embedding": vectors}
        if wanted.inputs[0].name in ("image", "file"):
            if self.refused in wanted.inputs[0].data:
                raise BadInput(f"`{wanted.param}` cannot be read: it is damaged.", param=wanted.param)
            sizes = [len(row) for row in rows_of(wanted.inputs[0])]
            return {"probabilities": np.array([[1 / size, 1 - 1 / size] for size in sizes], dtype=np.float32)}
        texts = texts_of(wanted.inputs[0])
        words = [text.split() for text in texts]
        known = {
            "embedding": np.stack([vector_of(text) for text in texts]),
            "tokens": np.array([[len(row) + 2] for row in words], dtype=np.int32),
            "chunks": np.array([[max(1, -(-len(row) // 254))] for row in words], dtype=np.int32),
            "score": np.array([[len(set(words[0]) & set(row)) / 2] for row in words], dtype=np.float32),
            "probabilities": np.array([PROBABILITIES[wanted.model]] * len(texts), dtype=np.float32)
            if wanted.model in PROBABILITIES
            else None,
            "injection_probability": np.array([[float("ignore" in row)] for row in words], dtype=np.float32),
            **_sparse(words),
            "language": np.array([["de" if "bitte" in row else "en"] for row in words], dtype=object),
            "language_probability": np.full((len(texts), 1), 0.75, dtype=np.float32),
        }
        return {name: known[name] for name in wanted.outputs}


def _sparse(words: list[list[str]]) -> dict[str, np.ndarray]:
    """The number in each word as its index, with weight 1; rows of one length, padded with -1 and 0."""
    indices = np.full((len(words), 4), -1, dtype=np.int32)
    for row, text in zip(indices, words, strict=True):
        known = sorted({int(word[1:]) for word in text if word[1:].isdecimal()}, reverse=True)[:4]
        row[: len(known)] = known
    return {"indices": indices, "values": (indices >= 0).astype(np.float32)}


@dataclass(frozen=True)
class Router:
    """The router under test, its client, and the zoo behind it."""

    app: FastAPI
    http: httpx.AsyncClient
    zoo: FakeZoo
    services: Services
    metrics: RouterMetrics

    async def embed(self, input: Any, **fields: Any) -> httpx.Response:
        return await self.http.post("/v1/embeddings", json={"model": "embed", "input": input, **fields})

    def counted(self, metric: str, **labels: str) -> float:
        """The value of the series with all of these labels; 0 where there is none."""
        series = [
            line.rpartition(" ")[2]
            for line in self.metrics.exposition().decode().splitlines()
            if line.startswith(f"{metric}{{") and all(f'{name}="{value}"' in line for name, value in labels.items())
        ]
        return sum(map(float, series))

    @property
    def taken_tokens(self) -> int:
        """Tokens in flight, of both classes."""
        return sum(budget.taken_tokens for budget in self.services.dispatch.budgets.values())


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    words = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])}
    words |= {f"w{index}": index for index in range(len(words), VOCABULARY_SIZE)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    tokenizer.enable_truncation(4)  # as files in the wild have it: counting must not be fooled by it
    return Vocabulary(tokenizer)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    loaded = load_catalogue(Path(__file__).parents[3] / "zoo.yaml")
    labelled = (model.model_copy(update={"labels": LABELS}) if model.labels_file else model for model in loaded)
    return Catalogue(tuple(labelled))


@pytest.fixture
def bounds() -> RouterSettings:
    return RouterSettings()


@pytest.fixture
async def router(vocabulary: Vocabulary, catalogue: Catalogue, bounds: RouterSettings) -> AsyncIterator[Router]:
    zoo, metrics = FakeZoo(), RouterMetrics(CollectorRegistry())
    zoo.open.set()
    served = Catalogue(tuple(model for model in catalogue if model.runs_on == "zoo"))
    chat = Catalogue((*served.models, *catalogue.of_task("chat")))
    vocabularies = {model.name: vocabulary for model in served if model.name != "classify"}
    word_list = WordList(
        words.Vocabulary("!,.", lower=True, num_words=900, words={f"w{index}": index for index in range(1, 900)})
    )
    services = wired(Settings(router=bounds), chat, vocabularies, {"classify": word_list}, {}, zoo, metrics)
    app = bare_app(bounds, metrics)
    app.state.services = services
    watch = asyncio.create_task(services.readiness.watch())
    for _ in range(1000):  # the probes' turns; nothing in them waits
        await asyncio.sleep(0)
        if all(services.readiness.is_ready(model.name) for model in served):
            break
    zoo.asked.clear()
    zoo.most_busy = 0
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as http:
        yield Router(app, http, zoo, services, metrics)
    zoo.open.set()
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


@pytest.fixture(name="vector_of")
def _vector_of() -> Any:
    return vector_of


@pytest.fixture(name="texts_of")
def _texts_of() -> Any:
    return texts_of
