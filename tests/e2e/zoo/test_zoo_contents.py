"""Images and files from an HTTP request through the whole router to the committed zoo in a real Triton, and back."""

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from zooserve.settings import AccessLogSettings, Settings, TritonSettings
from zooserve_router.app import create_app

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).read_bytes()
MODELS = ["nsfw", "file_type", "language", "rag_query"]


@pytest.fixture
async def http(zoo: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a router over the zoo, once the models that are asked here have proven themselves to it."""
    addresses = zoo.server.addresses
    settings = Settings(
        catalogue=ROOT / "zoo.yaml",
        repository=ROOT / "model_repository",
        models=",".join(MODELS),
        zoo=TritonSettings(http_port=addresses.http_port),
        leaf=TritonSettings(grpc_port=addresses.grpc_port),
        access_log=AccessLogSettings(enabled=False),
    )
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://router", timeout=60) as client:
            for model in MODELS:
                await _ready(client, model)
            yield client


async def _ready(client: httpx.AsyncClient, model: str) -> None:
    for _ in range(600):
        if (await client.get(f"/v2/models/{model}/ready")).status_code == 200:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{model} is not ready: {(await client.get('/health/ready')).text}")


def image(content: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 48), (90, 160, 90)).save(file, format="PNG")
    return file.getvalue()


async def classified(http: httpx.AsyncClient, model: str, value: Any) -> httpx.Response:
    return await http.post("/v1/classify", json={"model": model, "input": value})


async def test_an_image_is_classified(http: httpx.AsyncClient) -> None:
    answer = await classified(http, "nsfw", image(png()))
    assert answer.status_code == 200, answer.text
    (item,) = answer.json()["data"]
    assert item["label"] == "sfw"
    assert sum(item["probs"]) == pytest.approx(1, abs=1e-4)


async def test_a_damaged_image_among_good_ones_is_named_and_does_no_harm(http: httpx.AsyncClient) -> None:
    answer = await classified(http, "nsfw", [image(png()), image(png()[:60]), image(png())])
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "input[1]"
    assert error["message"].startswith("`input[1]` cannot be read: it is damaged")
    assert (await classified(http, "nsfw", [image(png())] * 8)).status_code == 200


async def test_a_file_is_told_with_its_likeliest_types_and_one_too_short_is_named(http: httpx.AsyncClient) -> None:
    script = base64.b64encode(SCRIPT).decode()
    part = {"type": "file", "file": {"file_data": f"data:;base64,{script}", "filename": "test.py"}}
    (item,) = (await classified(http, "file_type", part)).json()["data"]
    assert item["label"] == "python"
    assert (len(item["probs"]), len(item["scores"])) == (214, 5)
    short = {"type": "file", "file": {"file_data": "data:;base64,YWI="}}
    answer = await classified(http, "file_type", [part, short])
    assert answer.json()["error"]["message"].startswith("`input[1]` cannot be read: it has 2 bytes besides blanks")


async def test_a_text_has_a_language_and_a_query_too(http: httpx.AsyncClient) -> None:
    text = "Wie ändere ich die Größe der Warteschlange?"
    (item,) = (await classified(http, "language", text)).json()["data"]
    assert item["label"] == "de"
    assert item["num_classes"] == 140
    query = (await http.post("/v1/rag_query", json={"input": text})).json()["data"][0]
    assert query["language"]["code"] == "de"
    assert query["language"]["probability"] == pytest.approx(item["scores"]["de"], abs=1e-4)


async def test_a_model_that_is_not_enabled_is_a_404_that_says_so(http: httpx.AsyncClient) -> None:
    answer = await classified(http, "injection", "hello")
    assert answer.status_code == 404
    assert "ZOOSERVE_MODELS=default,injection" in answer.json()["error"]["message"]
