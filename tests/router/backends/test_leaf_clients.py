"""Which client a catalogue entry on the leaf gets."""

from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from zooserve.catalogue import Backend, Limits, Model
from zooserve.errors import BackendUnavailable
from zooserve.settings import Settings, TritonSettings
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.backends.engine_path import EnginePath
from zooserve_router.backends.guarded import Guarded
from zooserve_router.backends.leaf import Leaf
from zooserve_router.backends.leaf_clients import opened_leaves
from zooserve_router.backends.leaves import Leaves
from zooserve_router.backends.vllm import Vllm
from zooserve_router.chat.generation import Generation
from zooserve_router.ways import Ways


def model_on(backend: Backend) -> Model:
    return Model(
        name="chat",
        task="chat",
        runs_on="leaf",
        triton={"interactive": "the_model"},
        backend=backend,
        tokenizer="tokenizer.json",
        chat_template="chat_template.jinja",
        limits=Limits(max_tokens=400),
        kv_budget_tokens=1000,
        licence="none",
        source="a test",
    )


@pytest.mark.parametrize(("kind", "client"), [("llmapi", Leaf), ("tensorrt_llm", EnginePath), ("vllm", Vllm)])
async def test_one_leaf_is_asked_directly_in_its_own_contract(kind: Any, client: type) -> None:
    settings = Settings(leaf=TritonSettings(grpc_port=4711))
    async with AsyncExitStack() as stack:
        opened = opened_leaves(settings, stack, model_on(Backend(kind=kind)), Ways())
        assert isinstance(opened, Guarded)
        assert isinstance(opened.backend, client)
        stream = cast("Any", opened.backend)._stream
        assert (stream.address, stream.model) == ("127.0.0.1:4711", "the_model")
        assert opened.breaker.endpoint == "leaf"


@pytest.mark.parametrize(
    "budget",
    [{"kv_budget_tokens": 16_000}, {"kv_budget_tokens": None, "kv_memory_bytes": 32_000, "kv_bytes_per_token": 2}],
    ids=["tokens", "memory"],
)
async def test_a_leaf_below_its_idle_part_of_the_budget_keeps_its_prompts_however_the_budget_is_given(
    budget: dict[str, Any],
) -> None:
    several = model_on(Backend(leaves=("a:1", "b:1"))).model_copy(update=budget)
    async with AsyncExitStack() as stack:
        opened = opened_leaves(Settings(), stack, several, Ways())
        assert isinstance(opened, Leaves)
        prompt = Generation("Hi")
        first = opened._choose(prompt, {"a:1": 0, "b:1": 0}, 1)
        (other,) = {"a:1", "b:1"} - {first}
        assert opened._choose(prompt, {first: 900, other: 0}, 1) == first  # an eighth of half of 16,000 is 1,000
        assert opened._choose(prompt, {first: 1100, other: 0}, 1) == other


async def test_several_leaves_are_asked_by_affinity() -> None:
    async with AsyncExitStack() as stack:
        opened = opened_leaves(Settings(), stack, model_on(Backend(kind="vllm", leaves=("a:1", "b:1"))), Ways())
        assert isinstance(opened, Leaves)
        assert dict(opened.in_flight()) == {"a:1": 0, "b:1": 0}


async def test_a_leaf_that_is_down_is_counted_under_its_model_and_address() -> None:
    metrics = RouterMetrics(CollectorRegistry())
    async with AsyncExitStack() as stack:
        down = model_on(Backend(leaves=("127.0.0.1:1", "127.0.0.1:2")))
        opened = opened_leaves(Settings(), stack, down, Ways(metrics.endpoints), metrics.leaves)
        with pytest.raises(BackendUnavailable):
            await anext(opened.generate(Generation("Hi"), 5))
    told = metrics.exposition().decode()
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        assert f'zooserve_leaf_left_out_total{{leaf="{address}",model="chat"}} 1.0' in told
        assert f'zooserve_leaf_requests_in_flight{{leaf="{address}",model="chat"}} 0.0' in told
        assert f'zooserve_breaker_state{{endpoint="leaf:{address}"}} 2.0' in told
        assert f'zooserve_breaker_opened_total{{endpoint="leaf:{address}"}} 1.0' in told


async def test_a_leaf_that_nobody_was_sent_to_yet_stands_beside_the_others_at_0() -> None:
    metrics = RouterMetrics(CollectorRegistry())
    async with AsyncExitStack() as stack:
        pair = model_on(Backend(leaves=("127.0.0.1:1", "127.0.0.1:2")))
        opened_leaves(Settings(), stack, pair, Ways(metrics.endpoints), metrics.leaves)
        told = metrics.exposition().decode()
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        assert f'zooserve_leaf_requests_in_flight{{leaf="{address}",model="chat"}} 0.0' in told
        assert f'zooserve_leaf_left_out_total{{leaf="{address}",model="chat"}} 0.0' in told


async def test_a_single_leaf_of_the_catalogue_is_an_endpoint_by_its_address() -> None:
    async with AsyncExitStack() as stack:
        opened = opened_leaves(Settings(), stack, model_on(Backend(leaves=("gpu-1:8001",))), Ways())
        assert isinstance(opened, Guarded)
        assert opened.breaker.endpoint == "leaf:gpu-1:8001"


@pytest.mark.parametrize("leaves", [("a",), ("http://a:1",), ("a:1", "a:1"), ("a:1 ",)])
def test_an_address_that_is_none_is_refused_with_the_catalogue(leaves: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="leaves"):
        Backend(leaves=leaves)
