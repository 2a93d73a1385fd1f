"""Prompts before texts, for the models that were trained with them."""

import pytest


async def ask(router, **fields):
    return await router.http.post("/v1/embeddings", json={"model": "embed_multilingual", **fields})


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [({"input_type": "query"}, "query: "), ({"input_type": "passage"}, "passage: "), ({}, "passage: ")],
)
async def test_every_text_goes_behind_the_prompt_of_what_it_is(router, texts_of, fields, prompt):
    answer = await ask(router, input=["w5", "w6 w7"], **fields)
    assert answer.status_code == 200
    assert texts_of(router.zoo.asked[0].inputs[0]) == [f"{prompt}w5", f"{prompt}w6 w7"]


async def test_the_prompt_counts_towards_tokens_and_their_limit(router):
    assert (await ask(router, input="w5")).json()["usage"]["prompt_tokens"] == 4  # passage:, w5 and the frame
    assert (await ask(router, input="w5 " * 509)).status_code == 200
    refused = await ask(router, input="w5 " * 510)
    assert refused.status_code == 400
    assert "513 tokens" in refused.json()["error"]["message"]


async def test_an_empty_text_does_not_pass_for_its_prompt(router):
    assert (await ask(router, input="")).status_code == 400


async def test_an_unknown_type_is_refused(router):
    answer = await ask(router, input="w5", input_type="document")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input_type"


async def test_a_model_without_prompts_takes_the_type_and_changes_nothing(router, texts_of):
    answer = await router.embed("w5", input_type="query")
    assert answer.status_code == 200
    assert texts_of(router.zoo.asked[0].inputs[0]) == ["w5"]


async def test_token_ids_bring_their_prompt_along(router):
    answer = await ask(router, input=[5, 6], input_type="query")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input_type"
