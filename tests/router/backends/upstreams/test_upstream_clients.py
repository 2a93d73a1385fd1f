"""Where a model's upstream is found, and what is said of one that cannot be asked."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from zooserve.catalogue import Backend, Limits, Model
from zooserve.errors import BackendUnavailable
from zooserve.settings import EngineServerSettings, Settings
from zooserve_router.backends.anthropic import AnthropicUpstream
from zooserve_router.backends.openai import OpenAIUpstream
from zooserve_router.backends.opening import opened_backend
from zooserve_router.chat.generation import Conversation
from zooserve_router.chat.models import Provable
from zooserve_router.ways import Ways


def model(runs_on: Any = "upstream", **backend: Any) -> Model:
    where = {"url": "https://upstream/v1/"} if runs_on == "upstream" else {}
    given = Backend(**{"kind": "openai", **where, **backend})
    limits = Limits(max_tokens=400)
    return Model(
        name="ours", task="chat", runs_on=runs_on, backend=given, limits=limits, licence="none", source="a test"
    )


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


async def test_the_kind_decides_who_answers(stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-1")
    openai = opened_backend(Settings(), stack, model(key_env="UPSTREAM_KEY"), ways=Ways())
    assert isinstance(openai, OpenAIUpstream)
    assert openai._upstream.headers == {"authorization": "Bearer sk-1"}
    assert openai._upstream.url == "https://upstream/v1"
    assert openai._upstream.way.endpoint == "ours"
    anthropic = opened_backend(Settings(), stack, model(kind="anthropic", key_env="UPSTREAM_KEY"), ways=Ways())
    assert isinstance(anthropic, AnthropicUpstream)
    assert anthropic._upstream.headers == {"x-api-key": "sk-1", "anthropic-version": "2023-06-01"}


async def test_without_a_named_key_none_is_sent(stack: AsyncExitStack) -> None:
    openai = opened_backend(Settings(), stack, model(), ways=Ways())
    assert isinstance(openai, OpenAIUpstream)
    assert openai._upstream.headers == {}


@pytest.mark.parametrize("value", [None, "", "  "])
async def test_a_missing_key_makes_the_model_not_ready_and_says_which(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("UPSTREAM_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("UPSTREAM_KEY", value)
    backend = opened_backend(Settings(), stack, model(key_env="UPSTREAM_KEY"), ways=Ways())
    assert isinstance(backend, Provable)
    with pytest.raises(BackendUnavailable, match="set UPSTREAM_KEY"):
        await backend.prove(1)
    with pytest.raises(BackendUnavailable, match="set UPSTREAM_KEY"):
        await anext(backend.generate(Conversation([]), 1))


async def test_the_platforms_own_engine_is_asked_where_the_settings_say(stack: AsyncExitStack) -> None:
    settings = Settings(engine=EngineServerSettings(host="::1", port=4444, key="k1"))
    backend = opened_backend(settings, stack, model("engine"), ways=Ways())
    assert isinstance(backend, OpenAIUpstream)
    assert (backend._upstream.url, backend._upstream.headers["authorization"]) == ("http://[::1]:4444/v1", "Bearer k1")


async def test_an_engine_without_an_address_says_which_settings_are_missing(stack: AsyncExitStack) -> None:
    backend = opened_backend(Settings(), stack, model("engine"), ways=Ways())
    with pytest.raises(BackendUnavailable, match="ZOOSERVE_ENGINE__PORT"):
        await anext(backend.generate(Conversation([]), 1))
