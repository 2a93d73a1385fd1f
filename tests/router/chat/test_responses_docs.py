"""docs/responses.md says what becomes of every field that is read, and of every one that OpenAI has."""

from pathlib import Path
from typing import get_type_hints

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

DOCS = (Path(__file__).parents[3] / "docs" / "responses.md").read_text(encoding="utf-8")


async def test_every_field_that_is_read_is_told(edge) -> None:
    refused = (await edge.http.post("/v1/responses", json={"model": "chat", "input": "Hi", "zzzzzzzz": 1})).json()
    _, _, known = refused["error"]["message"].partition("Known here: ")
    fields = known.removesuffix(".").split(", ")
    assert len(fields) > 20
    assert [name for name in fields if f"`{name}" not in DOCS] == []


@pytest.mark.parametrize("name", sorted(get_type_hints(ResponseCreateParamsStreaming)))
async def test_no_field_of_openais_is_unknown(edge, name) -> None:
    assert f"`{name}" in DOCS
    error = (await edge.http.post("/v1/responses", json={"model": "chat", "input": "Hi", name: {"": 0}})).json()
    assert error["error"]["code"] != "unknown_parameter" or error["error"]["param"].startswith(f"{name}.")
