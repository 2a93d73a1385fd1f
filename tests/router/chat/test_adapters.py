"""A LoRA adapter is chosen by the model's name alone: `chat:support`. Nothing that a caller says of it goes further."""

import asyncio
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.testclient import TestClient

from zooserve.catalogue import Adapter, Backend, Catalogue, Model
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.chat.generation import Generation
from zooserve_router.endpoints import models
from zooserve_router.spaces import Spaces


@pytest.fixture
def chat_model(chat_model: Model) -> Model:
    """The edge's model, with two adapters."""
    lora = {"support": Adapter(id=1, path="/adapters/support"), "legal": Adapter(id=2, path="/adapters/legal")}
    return chat_model.model_copy(update={"backend": Backend(kind="llmapi", lora=lora)})


def chosen(edge) -> list[str | None]:
    assert all(isinstance(work, Generation) for work in edge.leaf.asked)
    return [work.lora for work in edge.leaf.asked]


async def test_a_chat_goes_to_the_adapter_that_its_model_names(edge) -> None:
    answer = await edge.chat(model="chat:support")
    assert (answer.status_code, answer.json()["model"]) == (200, "chat:support")
    assert chosen(edge) == ["support"]


async def test_every_choice_of_one_request_has_the_adapter(edge) -> None:
    answer = await edge.chat(model="chat:legal@1", n=3)
    assert answer.status_code == 200
    assert chosen(edge) == ["legal"] * 3


async def test_without_a_name_of_one_no_adapter_is_used_not_even_after_one_was(edge) -> None:
    await edge.chat(model="chat:support")
    await edge.chat()
    assert chosen(edge) == ["support", None]


async def test_raw_prompts_have_them_too(edge) -> None:
    body = {"model": "chat:support", "prompt": ["a", "b"]}
    answer = await edge.http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["model"]) == (200, "chat:support")
    assert chosen(edge) == ["support", "support"]


async def test_responses_have_them_too(edge) -> None:
    answer = await edge.http.post("/v1/responses", json={"model": "chat:support", "input": "Hi", "store": False})
    assert (answer.status_code, answer.json()["model"]) == (200, "chat:support")
    assert chosen(edge) == ["support"]


@pytest.mark.parametrize("name", ["chat:sales", "chat:/etc/passwd", "chat:", "chat:support:legal", "chat:../support"])
async def test_an_adapter_that_is_not_declared_is_not_found_and_nobody_is_asked(edge, name: str) -> None:
    answer = await edge.chat(model=name)
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "model"
    assert edge.leaf.asked == []


@pytest.mark.parametrize("field", ["lora_path", "lora_name", "lora_id", "lora_request", "lora_ckpt_source"])
async def test_what_a_caller_says_of_an_adapter_is_refused_by_name_and_never_forwarded(edge, field: str) -> None:
    answer = await edge.chat(model="chat:support", **{field: "/etc/passwd"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert edge.leaf.asked == []


async def test_an_adapter_holds_tokens_of_its_models_budget(edge) -> None:
    edge.leaf.hold = asyncio.Event()
    running = asyncio.create_task(edge.chat(model="chat:support", max_tokens=50))
    await edge.leaf.said.wait()
    assert edge.budget.taken_tokens > 50
    edge.leaf.hold.set()
    assert (await running).status_code == 200


def test_each_adapter_is_listed_as_a_model_with_its_parent(chat_model: Model) -> None:
    app = Starlette(routes=list(models.routes))
    ready = SimpleNamespace(is_ready=lambda name: name == "chat")
    spaces = Spaces({}, RouterMetrics(CollectorRegistry()))
    app.state.services = SimpleNamespace(catalogue=Catalogue((chat_model,)), readiness=ready, spaces=spaces)
    client = TestClient(app)

    listed = client.get("/v1/models").json()["data"]
    assert [(model["id"], model.get("parent"), model["ready"]) for model in listed] == [
        ("chat", None, True), ("chat:support", "chat", True), ("chat:legal", "chat", True)
    ]  # fmt: skip
    assert client.get("/v1/models/chat:legal").json()["id"] == "chat:legal"
