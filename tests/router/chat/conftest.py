"""A whole chat edge (middleware, routes, service) over a leaf that says what the test tells it to."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from zooserve.catalogue import Catalogue, Limits, Model
from zooserve.errors import ServingError
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.admission import Budget
from zooserve_router.chat.generation import Piece, Work
from zooserve_router.chat.models import ChatModel, chat_probe
from zooserve_router.chat.service import ChatService
from zooserve_router.chat.templates import ChatTemplate
from zooserve_router.chat.tokens import ChatTokenizer, load_tokenizer
from zooserve_router.endpoints import chat, completions
from zooserve_router.middleware import Edge
from zooserve_router.readiness import Readiness

TEMPLATE = (
    "{% for message in messages %}{% if message['content'] == 'please raise' %}"
    "{{ raise_exception('this model does not take requests') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass
class FakeLeaf:
    """Says `script` to every request; with `hold` set it waits for it before each piece after the first."""

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
    leaf, budget, metrics = FakeLeaf(), Budget("chat", 1000), RouterMetrics(CollectorRegistry())
    chats = {"chat": ChatModel(chat_model, leaf, budget, ChatTemplate(TEMPLATE), byte_tokenizer)}
    readiness = Readiness([chat_model], {"chat": chat_probe(chat_model, chats)})
    app = Starlette(routes=[*chat.routes, *completions.routes])
    service = ChatService(chats, readiness, metrics, cancel_settles_s=0.0)
    app.state.services = SimpleNamespace(catalogue=Catalogue((chat_model,)), chat=service)
    app.add_middleware(Edge, metrics=metrics, max_body_bytes=8 * 2**20, max_deadline_s=60)
    watch = asyncio.create_task(readiness.watch())
    await leaf.said.wait()  # the probe's one token
    await asyncio.sleep(0)
    assert readiness.is_ready("chat")
    leaf.asked.clear()
    leaf.said.clear()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as http:
        yield ChatEdge(http, leaf, budget, metrics, app)
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
