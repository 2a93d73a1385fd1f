"""docs/chat.md says what becomes of every field that is read, and of every feature there is."""

import re
from pathlib import Path

import pytest

from zooserve.catalogue import CAPABILITIES

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


def test_the_table_of_features_is_the_catalogues() -> None:
    table = DOCS.partition("## What a model can do")[2].partition("\n| feature ")[2].partition("\n\n")[0]
    header, _, *rows = [line.split("|")[1:-1] for line in f"| feature {table}".splitlines()]
    told = {
        kind: {name for row in rows for name in re.findall(r"`(\w+)`", row[0]) if row[column].strip() == "yes"}
        for column, title in enumerate(header)
        for kind in re.findall(r"`(\w+)`", title)
    }
    assert told == CAPABILITIES
