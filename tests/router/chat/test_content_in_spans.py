"""What callers send and get stands in spans where that is switched on, and nowhere else."""

import json
from typing import Any

import pytest

from zooserve.errors import BackendFailed

SECRET = "the password is swordfish"


def all_of(edge: Any) -> str:
    return "".join(span.to_json() for span in edge.spans)


async def say_and_fail(edge: Any, pieces: Any) -> None:
    """A chat that is answered, one that is refused, and one whose backend quotes it when it fails."""
    edge.leaf.script = pieces([SECRET, " indeed"])
    await edge.chat(SECRET)
    await edge.chat(SECRET, temperature=SECRET)
    edge.leaf.script = [BackendFailed(f"cannot write {SECRET}")]
    await edge.chat(SECRET)


async def test_by_default_nothing_of_it_is_in_any_span(edge: Any, pieces: Any) -> None:
    await say_and_fail(edge, pieces)
    assert len([span for span in edge.spans if span.name == "zooserve.request"]) == 3
    assert "swordfish" not in all_of(edge)


async def test_where_it_is_switched_on_prompts_answers_and_errors_are_told(open_edge: Any, pieces: Any) -> None:
    await say_and_fail(open_edge, pieces)
    answered, refused, failed = [span for span in open_edge.spans if span.name == "zooserve.request"]
    chats = [span for span in open_edge.spans if span.name == "chat chat"]
    assert SECRET in chats[0].attributes["zooserve.prompts"][0]
    assert chats[0].attributes["zooserve.answers"] == (f"{SECRET} indeed",)
    assert "error.message" not in answered.attributes
    assert "temperature" in refused.attributes["error.message"]
    assert refused.status.is_ok
    assert failed.status.description == f"cannot write {SECRET}"


@pytest.mark.parametrize("length", [1, 100_000])
async def test_messages_to_an_upstream_are_told_as_json_and_cut_like_everything(open_edge: Any, length: int) -> None:
    await open_edge.chat("x" * length, model="remote")
    (prompt,) = open_edge.span("chat remote").attributes["zooserve.prompts"]
    if length == 1:
        assert json.loads(prompt)[-1:] == [{"role": "user", "content": "x"}]
    else:
        assert len(prompt) == 4096
