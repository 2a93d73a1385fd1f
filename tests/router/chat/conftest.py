"""A whole chat edge (middleware, routes, service) over a leaf that says what the test tells it to."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from zooserve.catalogue import Backend, Canary, Catalogue, Limits, Model, Releases
from zooserve.errors import ServingError
from zooserve.settings import TracingSettings
from zooserve_observability.metrics import RouterMetrics
from zooserve_observability.tracing import Tracing
from zooserve_router.admission import Budget
from zooserve_router.chat.generation import Piece, Work
from zooserve_router.chat.models import ChatModel, chat_probe
from zooserve_router.chat.service import ChatService
from zooserve_router.chat.templates import ChatTemplate
from zooserve_router.chat.tokens import ChatTokenizer, load_tokenizer
from zooserve_router.endpoints import chat, completions, responses
from zooserve_router.fair_queue import FairQueue
from zooserve_router.lineup import Lineup
from zooserve_router.middleware import Edge
from zooserve_router.readiness import Readiness
from zooserve_router.releases import ReleasePolicy
from zooserve_router.spaces import Spaces

MOST_WAITING = 3
TEMPLATE = (
    "{% for message in messages %}{% if message['content'] == 'please raise' %}"
    "{{ raise_exception('this model does not take requests') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


SILENCE_S = 2.0
"""What an answer may be silent for: long for every test but the one of silence."""


@dataclass
class FakeLeaf:
    """Says `script` to every request; with `hold` set it waits for it before each piece after the first.

    Asked for several choices at once, as an upstream may be, it says each piece of every one.
    """

    script: list[Piece | ServingError] = field(default_factory=lambda: [Piece("Hello"), Piece("", "stop")])
    hold: asyncio.Event | None = None
    asked: list[Work] = field(default_factory=list)
    open: int = 0
    said: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        self.asked.append(work)
        self.open += 1
        try:
            for index, item in enumerate(self.script):
                if index and self.hold is not None:
                    await self.hold.wait()
                if isinstance(item, ServingError):
                    raise item
                self.said.set()
                yield item
                for choice in range(1, getattr(work, "n", 1)):
                    yield replace(item, choice=choice)
        finally:
            self.open -= 1


@dataclass
class ChatEdge:
    """The edge under test and what stands behind it."""

    http: httpx.AsyncClient
    leaf: FakeLeaf
    budget: Budget
    metrics: RouterMetrics
    app: Any
    queue: FairQueue
    service: ChatService
    exporter: InMemorySpanExporter

    @property
    def spans(self) -> list[ReadableSpan]:
        """Every span that has ended, in the order of their ends: a request's own is its last."""
        return list(self.exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """The spans right below this one."""
        return [span for span in self.spans if span.parent and span.parent.span_id == parent.context.span_id]

    async def chat(self, content: str = "Hi", **fields: Any) -> httpx.Response:
        body = {"model": "chat", "messages": [{"role": "user", "content": content}], **fields}
        return await self.http.post("/v1/chat/completions", json=body)


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """One token per byte, and the control tokens of the template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<filename>"]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    path: Path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return load_tokenizer(path, TEMPLATE)


@pytest.fixture
def chat_model() -> Model:
    return Model(
        name="chat",
        task="chat",
        runs_on="leaf",
        triton={"interactive": "tensorrt_llm"},
        tokenizer="tokenizer.json",
        chat_template="chat_template.jinja",
        default_system_prompt="Be kind.",
        limits=Limits(max_tokens=400, max_completion_tokens=100),
        kv_budget_tokens=1000,
        licence="none",
        source="a test",
    )


@pytest.fixture
async def edge(byte_tokenizer: ChatTokenizer, chat_model: Model) -> AsyncIterator[ChatEdge]:
    """The edge over one leaf of TensorRT-LLM's llmapi contract."""
    async with _running([chat_model], byte_tokenizer) as running:
        yield running


@pytest.fixture
async def many(byte_tokenizer: ChatTokenizer, chat_model: Model) -> AsyncIterator[ChatEdge]:
    """The edge over a model of each kind, all answered by one fake: `chat(model="remote")` picks one.

    `chat` is a bare leaf, `grammar` one with a grammar that biases tokens too, `remote` OpenAI itself, `local`
    llama.cpp's server, `claude` Anthropic.
    """
    grammar = Backend(kind="vllm", can=frozenset({"logit_bias"}))
    remote = Backend(url="http://remote/v1", kind="openai", forward_headers=("X-Tenant", "X-Absent"))
    local = Backend(url="http://local/v1", kind="openai", server="llama.cpp", cannot=frozenset({"tool_choice"}))
    claude = Backend(url="http://claude/v1", kind="anthropic")
    chats = [chat_model, chat_model.model_copy(update={"name": "grammar", "backend": grammar})]
    elsewhere = {"runs_on": "upstream", "triton": {}, "tokenizer": None, "chat_template": None}
    for name, backend in {"remote": remote, "local": local, "claude": claude}.items():
        chats.append(chat_model.model_copy(update={"name": name, "backend": backend, **elsewhere}))
    async with _running(chats, byte_tokenizer) as running:
        yield running


@pytest.fixture
async def open_edge(byte_tokenizer: ChatTokenizer, chat_model: Model) -> AsyncIterator[ChatEdge]:
    """The edge over one leaf and an upstream, whose spans hold content."""
    remote = {"name": "remote", "backend": Backend(url="http://remote/v1", kind="openai"), "runs_on": "upstream"}
    upstream = chat_model.model_copy(update={**remote, "triton": {}, "tokenizer": None, "chat_template": None})
    async with _running([chat_model, upstream], byte_tokenizer, TracingSettings(content=True)) as running:
        yield running


@pytest.fixture
async def split(byte_tokenizer: ChatTokenizer, chat_model: Model) -> AsyncIterator[ChatEdge]:
    """The edge over `chat`, half of whose requests its canary answers: `chat_next` 2, on somebody else's server."""
    remote = Backend(url="http://remote/v1", kind="openai", forward_headers=("X-Tenant",))
    elsewhere = {"runs_on": "upstream", "triton": {}, "tokenizer": None, "chat_template": None}
    canary = chat_model.model_copy(update={"name": "chat_next", "version": 2, "backend": remote, **elsewhere})
    releases = Releases(canary=Canary(model="chat_next", share=0.5))
    serving = chat_model.model_copy(update={"releases": releases})
    async with _running([serving, canary], byte_tokenizer) as running:
        yield running


@asynccontextmanager
async def _running(
    served: Sequence[Model], tokenizer: ChatTokenizer, traced: TracingSettings | None = None
) -> AsyncIterator[ChatEdge]:
    leaf, budget, metrics = FakeLeaf(), Budget("chat", 1000), RouterMetrics(CollectorRegistry())
    queue, exporter = FairQueue(budget, MOST_WAITING), InMemorySpanExporter()
    tracing = Tracing.by(traced or TracingSettings(), SimpleSpanProcessor(exporter))
    own = (ChatTemplate(TEMPLATE), tokenizer)
    chats = {
        model.name: ChatModel(model, leaf, queue, *(own if model.runs_on == "leaf" else (None, None)))
        for model in served
    }
    readiness = Readiness(served, {model.name: chat_probe(model, chats) for model in served})
    app = Starlette(routes=[*chat.routes, *completions.routes, *responses.routes])
    service = ChatService(chats, readiness, metrics, cancel_settles_s=0.0, silence_s=SILENCE_S)
    catalogue = Catalogue(tuple(served))
    releases, spaces = ReleasePolicy(catalogue, readiness.is_ready), Spaces({}, metrics)
    lineup = partial(Lineup, catalogue, releases=releases, spaces=spaces)
    app.state.services = SimpleNamespace(catalogue=catalogue, chat=service, lineup=lineup)
    app.add_middleware(Edge, metrics=metrics, max_body_bytes=8 * 2**20, max_deadline_s=60, tracing=tracing)
    watch = asyncio.create_task(readiness.watch())
    await leaf.said.wait()  # the probe's one token
    for _ in range(100):  # the other models' probes; nothing in them waits
        await asyncio.sleep(0)
    assert all(readiness.is_ready(model.name) for model in served)
    leaf.asked.clear()
    leaf.said.clear()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as http:
        yield ChatEdge(http, leaf, budget, metrics, app, queue, service, exporter)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


def events_of(response: httpx.Response) -> list[str]:
    """The data of every event of a stream."""
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


@pytest.fixture
def events() -> Any:
    return events_of


@pytest.fixture
def pieces() -> Any:
    """A script from texts: each a piece, then the end."""

    def script(texts: Iterable[str], finish_reason: str = "stop") -> list[Piece]:
        return [*(Piece(text) for text in texts), Piece("", finish_reason)]

    return script
