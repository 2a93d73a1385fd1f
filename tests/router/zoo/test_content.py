"""/v1/classify for what is no text, and for models of one label or many, over a fake zoo."""

import asyncio
import base64
import json
from typing import Any

import pytest

from zooserve.catalogue import Catalogue
from zooserve.errors import ModelNotFound
from zooserve.triton.samples import SAMPLES
from zooserve_router.dispatch import known_model


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def image(content: bytes = SAMPLES["image"]) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(content)}}


def file(content: bytes = SAMPLES["file"], **fields: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": data_url(content, ""), **fields}}


async def classify(router, model: str, value: Any) -> Any:
    return await router.http.post("/v1/classify", json={"model": model, "input": value})


async def test_an_image_reaches_the_zoo_as_its_bytes(router):
    answer = await classify(router, "nsfw", image())
    assert answer.status_code == 200, answer.text
    (asked,) = router.zoo.asked
    assert (asked.inputs[0].name, asked.inputs[0].data[4:]) == ("image", SAMPLES["image"])
    assert asked.outputs == ("probabilities",)
    assert answer.json()["data"][0]["label"] == "nsfw"
    assert answer.json()["usage"] == {"prompt_tokens": 0, "total_tokens": 0}


async def test_files_are_answered_in_their_order_whatever_they_are_called(router):
    contents = [b"x" * size for size in (2, 40, 8)]
    answer = await classify(router, "file_type", [file(content, filename="a.txt") for content in contents])
    assert [item["probs"][0] for item in answer.json()["data"]] == pytest.approx([1 / 2, 1 / 40, 1 / 8])


async def test_an_image_that_a_stage_refuses_is_named(router):
    answer = await classify(router, "nsfw", [image(), image(), image(b"refuse me")])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[2]"
    assert "it is damaged" in answer.json()["error"]["message"]
    assert router.taken_tokens == 0


REFUSED = [
    ("nsfw", "a text", "`input` is a string; nsfw takes an image, sent as"),
    ("nsfw", ["a text"], "`input[0]` is a string; nsfw takes an image, sent as"),
    ("nsfw", [file()], "`input[0]` is a content part of type 'file'; nsfw takes an image"),
    ("file_type", [image()], "`input[0]` is a content part of type 'image_url'; file_type takes a file"),
    ("classify", [image()], "`input[0]` is an object; it must be a string"),
    ("nsfw", [], "empty array"),
    ("nsfw", [image()] * 17, "17 items; nsfw takes at most 16"),
    ("nsfw", {"type": "image_url"}, "`input.image_url` is null"),
    ("nsfw", {"type": "image_url", "image_url": {}}, "`input.image_url.url` is null"),
    ("nsfw", {"type": "image_url", "image_url": {"url": 5}}, "`input.image_url.url` is an integer"),
    ("nsfw", {**image(), "detail": "low"}, "input.detail"),
    ("file_type", file(file_id="file-1"), "input.file.file_id"),
    ("nsfw", {"type": "image_url", "image_url": {"url": "data:image/png,abc"}}, "no base64 data URL"),
    ("nsfw", {"type": "image_url", "image_url": {"url": "data:image/png;base64"}}, "no base64 data URL"),
    ("nsfw", {"type": "image_url", "image_url": {"url": "data:;base64,abc$"}}, "not valid base64"),
    ("nsfw", {"type": "image_url", "image_url": {"url": "data:;base64,é"}}, "not valid base64"),
    ("nsfw", {"type": "image_url", "image_url": {"url": "data:;base64,"}}, "holds no bytes"),
]


@pytest.mark.parametrize(("model", "value", "said"), REFUSED)
async def test_what_is_no_content_of_the_model_is_refused_by_name(router, model: str, value: Any, said: str):
    answer = await classify(router, model, value)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert router.zoo.asked == []


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "https://example.org/a.png", "file:///etc/passwd", "//h"])
async def test_nothing_is_fetched_from_elsewhere(router, url: str):
    answer = await classify(router, "nsfw", {"type": "image_url", "image_url": {"url": url}})
    assert answer.status_code == 400
    assert "nothing is fetched from elsewhere" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "input.image_url.url"


async def test_an_exclusive_model_always_has_a_label_and_another_may_have_none(router):
    exclusive = (await classify(router, "language", "w5")).json()["data"][0]
    assert (exclusive["label"], exclusive["labels"]) == ("en", ["en"])
    other = (await classify(router, "injection", "w5")).json()["data"][0]
    assert (other["label"], other["labels"], other["scores"]) == (None, [], {"prompt_injection": pytest.approx(0.4)})


async def test_a_long_text_is_refused_where_tokens_are_counted_and_its_language_is_told_all_the_same(router):
    assert (await classify(router, "injection", "w5 " * 300)).status_code == 400
    assert (await classify(router, "language", "w5 " * 3000)).status_code == 200


async def test_an_image_counts_for_what_the_catalogue_says(router):
    router.zoo.open.clear()
    waiting = asyncio.create_task(classify(router, "nsfw", [image(), image()]))
    for _ in range(100):  # the request's own turns; it waits for the zoo then
        await asyncio.sleep(0)
    assert router.taken_tokens == 2 * 256
    router.zoo.open.set()
    assert (await waiting).status_code == 200


async def test_kserve_passes_an_image_that_is_no_text_on(router):
    raw = len(SAMPLES["image"]).to_bytes(4, "little") + SAMPLES["image"]
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(raw)}}
    header = json.dumps({"inputs": [tensor]}).encode()
    for model, status in (("nsfw", 200), ("classify", 400)):
        answer = await router.http.post(
            f"/v2/models/{model}/infer",
            content=header + raw,
            headers={"inference-header-content-length": str(len(header))},
        )
        assert answer.status_code == status, answer.text
    assert [path for _, path, _, _ in router.zoo.sent] == ["/v2/models/nsfw/infer"]


def test_a_model_that_is_not_enabled_says_how_to_enable_it(catalogue: Catalogue):
    with pytest.raises(ModelNotFound) as caught:
        known_model(catalogue.enabling("default"), "open-nsfw")
    assert "nsfw is in the catalogue but not enabled" in caught.value.message
    assert "zooserve up --models default,nsfw" in caught.value.message
    with pytest.raises(ModelNotFound, match="zooserve up --models default`"):
        known_model(catalogue.enabling("nsfw"), "embed")
