"""docs/chat.md says what becomes of every field that is read, and of every feature there is."""

from pathlib import Path
from typing import get_args

import pytest

from zooserve.catalogue import Feature

DOCS = (Path(__file__).parents[3] / "docs" / "chat.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_every_field_that_is_read_is_told(edge, path) -> None:
    asked = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    body = asked if "chat" in path else {"model": "chat", "prompt": "Hi"}
    refused = (await edge.http.post(path, json={**body, "zzzzzzzz": 1})).json()["error"]
    _, _, known = refused["message"].partition("Known here: ")
    fields = known.removesuffix(".").split(", ")
    assert len(fields) > 10
    assert [name for name in fields if f"`{name}" not in DOCS] == []


def test_every_feature_is_told() -> None:
    assert [name for name in get_args(Feature) if f"`{name}`" not in DOCS] == []
