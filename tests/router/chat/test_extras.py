"""What stands beside messages and sampling: taken, passed on to whom it means something, or refused."""

from typing import Any

import pytest

USER = {"role": "user", "content": "Hi"}
LABELS: dict[str, Any] = {
    "metadata": {"team": "search"},
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": True,
    "user": "someone",
}
MEANT: dict[str, Any] = {
    "prediction": {"type": "content", "content": "Hi"},
    "reasoning_effort": "high",
    "verbosity": "low",
    "web_search_options": {},
}


async def test_openai_gets_all_of_it(many) -> None:
    response = await many.chat(model="remote", **LABELS, **MEANT, modalities=["text"])
    assert response.status_code == 200, response.text
    assert dict(many.leaf.asked[0].passed_on) == {**LABELS, **MEANT, "modalities": ["text"]}


@pytest.mark.parametrize(("model", "known"), [("local", {"user"}), ("claude", {"user"})])
async def test_others_get_what_they_know(many, model, known) -> None:
    response = await many.chat(model=model, **LABELS)
    assert response.status_code == 200, response.text
    assert set(many.leaf.asked[0].passed_on) == known


async def test_anthropic_is_told_how_hard_to_think(many) -> None:
    await many.chat(model="claude", reasoning_effort="high")
    assert dict(many.leaf.asked[0].passed_on) == {"reasoning_effort": "high"}


@pytest.mark.parametrize("name", MEANT)
@pytest.mark.parametrize("model", ["chat", "local"])
async def test_what_would_be_dropped_is_refused(many, model, name) -> None:
    response = await many.chat(model=model, **{name: MEANT[name]})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", name)
    assert model in error["message"]
    assert many.leaf.asked == []


@pytest.mark.parametrize(
    "fields",
    [{"reasoning_effort": "none"}, {"verbosity": "medium"}, {"modalities": ["text"]}, LABELS, {"functions": []}],
)
async def test_what_asks_for_nothing_is_taken_everywhere(many, fields) -> None:
    for model in ("chat", "grammar", "remote", "local", "claude"):
        response = await many.chat(model=model, **fields)
        assert response.status_code == 200, response.text


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "metadata of a wrong type": ({"metadata": []}, "metadata", "invalid_type"),
    "seventeen pairs": ({"metadata": {str(key): "" for key in range(17)}}, "metadata", "invalid_value"),
    "a long key": ({"metadata": {"k" * 65: ""}}, "metadata", "invalid_value"),
    "a long value": ({"metadata": {"k": "v" * 513}}, "metadata.k", "invalid_value"),
    "a value that is a number": ({"metadata": {"k": 5}}, "metadata.k", "invalid_type"),
    "a user of a wrong type": ({"user": 5}, "user", "invalid_type"),
    "a long user": ({"user": "u" * 513}, "user", "invalid_value"),
    "an unknown tier": ({"service_tier": "gold"}, "service_tier", "invalid_value"),
    "store in words": ({"store": "yes"}, "store", "invalid_type"),
    "an unknown effort": ({"reasoning_effort": "herculean"}, "reasoning_effort", "invalid_value"),
    "an unknown verbosity": ({"verbosity": "chatty"}, "verbosity", "invalid_value"),
    "a prediction of a wrong type": ({"prediction": "Hi"}, "prediction", "invalid_type"),
    "a prediction of megabytes": ({"prediction": {"content": "x" * 70_000}}, "prediction", "invalid_value"),
    "a prediction too deep to pass on": ({"prediction": {"content": nested(240)}}, "prediction", "invalid_value"),
    "audio": ({"audio": {"voice": "alloy"}}, "audio", "unsupported_parameter"),
    "answers in audio": ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
}


@pytest.mark.parametrize("model", ["chat", "remote"])
@pytest.mark.parametrize(("fields", "param", "code"), BAD.values(), ids=BAD)
async def test_what_is_wrong_is_named_whatever_the_model(many, model, fields, param, code) -> None:
    response = await many.chat(model=model, **fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code), error["message"]
    assert many.leaf.asked == []


async def test_a_tier_that_is_asked_for_is_answered_where_all_are_served_alike(many) -> None:
    assert (await many.chat(service_tier="priority")).json()["service_tier"] == "default"
    assert "service_tier" not in (await many.chat()).json()
    assert "service_tier" not in (await many.chat(model="remote", service_tier="priority")).json()


async def test_an_upstream_sees_the_headers_that_the_catalogue_names_and_no_others(many) -> None:
    sent = {"x-tenant": "a", "x-other": "b", "authorization": "Bearer secret", "cookie": "c=1"}
    for model in ("remote", "local"):
        await many.http.post("/v1/chat/completions", json={"model": model, "messages": [USER]}, headers=sent)
    named, none = many.leaf.asked
    assert dict(named.headers) == {"x-tenant": "a"}
    assert dict(none.headers) == {}


@pytest.mark.parametrize(("model", "label"), [("remote", {"user": "u"}), ("local", {"user": "u"}), ("grammar", {})])
async def test_raw_prompts_go_with_the_user_and_the_headers_that_the_catalogue_names(many, model, label) -> None:
    body = {"model": model, "prompt": "Hi", "user": "u", "metadata": {"team": "search"}}
    response = await many.http.post("/v1/completions", json=body, headers={"x-tenant": "a", "x-other": "b"})
    assert response.status_code == 200, response.text
    (work,) = many.leaf.asked
    assert dict(work.passed_on) == label
    assert dict(work.headers) == ({"x-tenant": "a"} if model == "remote" else {})


async def test_a_header_that_cannot_be_passed_on_is_refused(many) -> None:
    body = {"model": "remote", "messages": [USER]}
    response = await many.http.post("/v1/chat/completions", json=body, headers=[(b"x-tenant", "Zürich".encode())])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "x-tenant")


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
async def test_a_cache_key_goes_with_the_prompt_to_whoever_chooses_its_leaf(edge, path) -> None:
    asked = (
        {"messages": [USER]}
        if path.startswith("chat")
        else {"prompt": "Hi"}
        if path == "completions"
        else {"input": "Hi"}
    )
    for key in ({"prompt_cache_key": "session 5"}, {}):
        response = await edge.http.post(f"/v1/{path}", json={"model": "chat", **asked, **key})
        assert response.status_code == 200, response.text
    assert [asked.cache_key for asked in edge.leaf.asked] == ["session 5", None]
