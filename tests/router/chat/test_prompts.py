"""Prompts of /v1/completions reach each backend in the form that it takes."""

from dataclasses import replace
from typing import Any, cast

import pytest

from zooserve.catalogue import Backend
from zooserve.errors import BadInput
from zooserve_router.admission import Budget
from zooserve_router.backends.openai_request import completion_body
from zooserve_router.chat.ask import Prompt
from zooserve_router.chat.generation import Generation
from zooserve_router.chat.models import ChatModel
from zooserve_router.endpoints.prompts import echo_of, prompt_of
from zooserve_router.fair_queue import FairQueue


@pytest.fixture
def chat_of(chat_model, byte_tokenizer) -> Any:
    """A chat model of this kind of backend, with the tokenizer of the tests."""

    def build(kind: Any, **fields: Any) -> ChatModel:
        where = {} if kind == "llmapi" else {"runs_on": "upstream", "triton": {}}
        backend = Backend(kind=kind) if kind == "llmapi" else Backend(kind=kind, url="http://remote/v1")
        model = chat_model.model_copy(update={"backend": backend, **where})
        tokenizer = replace(byte_tokenizer, **fields)
        return ChatModel(model, cast("Any", None), FairQueue(Budget("chat", 1000), 3), None, tokenizer)

    return build


@pytest.fixture
def ids_of(byte_tokenizer) -> Any:
    return lambda text: tuple(byte_tokenizer.tokenizer.encode(text, add_special_tokens=False).ids)


async def test_an_openai_upstream_gets_the_ids_themselves(many, ids_of) -> None:
    half = ids_of("é")[:1]
    body = {"model": "remote", "prompt": [list(half), list(ids_of("Hi"))], "max_tokens": 5}
    response = await many.http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    asked = many.leaf.asked
    assert [(each.prompt, each.ids) for each in asked] == [("", half), ("", ids_of("Hi"))]
    assert response.json()["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("generation", "prompt"), [(Generation("Hi"), "Hi"), (Generation("", ids=(5, 6)), [5, 6])], ids=["text", "ids"]
)
def test_the_upstreams_body_has_text_or_ids(chat_of, generation, prompt) -> None:
    assert completion_body(generation, chat_of("openai").model)["prompt"] == prompt


async def test_a_leaf_gets_the_text_of_the_ids(chat_of, ids_of) -> None:
    assert await prompt_of(chat_of("llmapi"), ids_of("Grüße")) == Prompt("Grüße", 7)


async def test_the_token_that_a_server_adds_is_left_to_it(chat_of, ids_of) -> None:
    begins = chat_of("llmapi", added_start="<|im_start|>")
    assert await prompt_of(begins, ids_of("<|im_start|>Hi")) == Prompt("Hi", 3)
    with pytest.raises(BadInput) as refused:
        await prompt_of(begins, ids_of("Hi"))
    assert (refused.value.param, refused.value.code) == ("prompt", "token_ids_not_canonical")


@pytest.mark.parametrize("text", ["Hi", "<|im_start|>Hi"])
async def test_the_token_that_a_server_adds_is_counted_once_with_a_text_too(chat_of, text) -> None:
    assert await prompt_of(chat_of("llmapi", added_start="<|im_start|>"), text) == Prompt("Hi", 3)


@pytest.mark.parametrize("kind", ["llmapi", "openai"])
async def test_ids_out_of_the_vocabulary_are_refused_where_it_is_known(chat_of, kind) -> None:
    with pytest.raises(BadInput, match="token 100000 at position 1 is not in this model's vocabulary"):
        await prompt_of(chat_of(kind), (5, 100_000))


async def test_ids_are_echoed_as_their_text(chat_of, ids_of) -> None:
    assert echo_of(chat_of("openai"), ids_of("Grüße")) == "Grüße"


async def test_ids_that_only_the_upstream_can_read_are_not_echoed(many) -> None:
    response = await many.http.post("/v1/completions", json={"model": "remote", "prompt": [5, 6], "echo": True})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "echo", "unsupported_parameter")
    assert many.leaf.asked == []


async def test_negative_ids_are_refused_everywhere(many) -> None:
    for model in ("chat", "remote"):
        response = await many.http.post("/v1/completions", json={"model": model, "prompt": [5, -6]})
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (400, "prompt", "invalid_value")
