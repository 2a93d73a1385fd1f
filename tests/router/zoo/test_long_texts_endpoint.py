"""/v1/embeddings with `long_text: "mean"`, over a fake zoo: who goes where, and what is refused."""

from typing import Any

import numpy as np
import pytest

from zooserve.catalogue import Catalogue
from zooserve.errors import BackendUnavailable

LONG = "w5 " * 600  # 602 tokens, 3 windows of 254


def rows(answer: Any) -> list[np.ndarray]:
    return [np.asarray(item["embedding"], dtype=np.float32) for item in answer.json()["data"]]


async def test_without_the_opt_in_a_long_text_is_refused_and_told_of_it(router):
    answer = await router.embed(LONG)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "has 602 tokens and embed reads at most 256" in message
    assert 'send `long_text: "mean"`' in message
    assert "8192" in message


async def test_long_texts_go_to_their_own_model_and_short_ones_the_ordinary_way(router, vector_of, texts_of):
    texts = ["w5", LONG, "w6 w7", LONG + "w8"]
    answer = await router.embed(texts, long_text="mean")
    assert [(asked.model, texts_of(asked.inputs[0])) for asked in router.zoo.asked] == [
        ("embed", ["w5", "w6 w7"]),
        ("embed_long", [LONG, LONG + "w8"]),
    ]
    for text, vector in zip(texts, rows(answer), strict=True):
        assert np.allclose(vector, vector_of(text))
    assert answer.json()["usage"]["prompt_tokens"] == 3 + 602 + 4 + 603
    assert answer.headers["x-zooserve-long-text"] == "mean; texts=2; chunks=6"


async def test_the_opt_in_changes_nothing_for_short_texts(router):
    with_it, without = await router.embed(["w5", "w6"], long_text="mean"), await router.embed(["w5", "w6"])
    assert with_it.json() == without.json()
    assert with_it.headers["x-zooserve-long-text"] == "mean; texts=0; chunks=0"
    assert "x-zooserve-long-text" not in without.headers


async def test_a_text_counts_as_many_times_as_it_has_windows_when_the_class_is_chosen(router):
    await router.embed("w5 " * (254 * 16), long_text="mean")
    await router.embed("w5 " * (254 * 16 + 1), long_text="mean")
    assert [asked.model for asked in router.zoo.asked] == ["embed_long", "embed_bulk_long"]


async def test_a_request_to_triton_holds_no_more_tokens_than_one_text_may_have(router, texts_of):
    await router.embed(["w5 " * 3000] * 5, long_text="mean")
    assert [len(texts_of(asked.inputs[0])) for asked in router.zoo.asked] == [2, 2, 1]


@pytest.mark.parametrize(
    ("body", "param", "told"),
    [
        ({"input": "w5 " * 8191, "long_text": "mean"}, "input", "reads at most 8192"),
        ({"input": "w5 " * 300 + " " * 131_072, "long_text": "mean"}, "input", "131072"),
        ({"input": [[5] * 300], "long_text": "mean"}, "long_text", "send `input` as strings"),
        ({"input": [5] * 300, "long_text": "mean"}, "long_text", "send `input` as strings"),
        ({"input": "w5", "long_text": "median"}, "long_text", "must be one of: mean"),
        ({"input": "w5", "long_text": True}, "long_text", "must be a string"),
        ({"input": ["w5 " * 8000] * 38, "long_text": "mean"}, "input", "one request takes 300000"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_sent(router, body, param, told):
    answer = await router.embed(**body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert told in error["message"]
    assert not router.zoo.asked


class TestWithoutIt:
    @pytest.fixture
    def catalogue(self, catalogue: Catalogue) -> Catalogue:
        models = tuple(model.model_copy(update={"long_text": None}) for model in catalogue)
        return Catalogue(models)

    async def test_a_model_may_have_no_way_with_long_texts(self, router):
        answer = await router.embed(LONG, long_text="mean")
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "unsupported_parameter"
        assert "long_text" not in (await router.embed(LONG)).json()["error"]["message"]


async def test_a_model_stays_ready_when_only_its_way_with_long_texts_fails(router):
    router.zoo.fault = BackendUnavailable("embed_long is not available")
    assert (await router.embed(LONG, long_text="mean")).status_code == 503
    router.zoo.fault = None
    assert (await router.embed("w5")).status_code == 200
    assert router.taken_tokens == 0
