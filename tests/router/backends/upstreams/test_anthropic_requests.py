"""What Anthropic's Messages API is sent for a conversation in OpenAI's shape."""

from typing import Any

import pytest

from zooserve.catalogue import Backend, Limits, Model
from zooserve.errors import BadInput, Unsupported
from zooserve_router.backends.anthropic_request import messages_body
from zooserve_router.chat.generation import Constraint, Conversation, Sampling, Tool, ToolChoice

HELLO = {"role": "user", "content": "Hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
WEATHER = Tool("weather", "Of a city", {"type": "object", "properties": {"city": {"type": "string"}}})


def model(**backend: Any) -> Model:
    given = Backend(**{"kind": "anthropic", "url": "https://upstream/v1", **backend})
    limits = Limits(max_tokens=400)
    return Model(
        name="ours", task="chat", runs_on="upstream", backend=given, limits=limits, licence="none", source="a test"
    )


def body_of(*messages: dict[str, Any], **work: Any) -> dict[str, Any]:
    return messages_body(Conversation(messages, **work), model())


def test_a_plain_chat_asks_for_nothing_but_a_stream_of_so_many_tokens() -> None:
    work = Conversation([HELLO], Sampling(20, seed=7))
    assert messages_body(work, model(model="claude")) == {
        "model": "claude",
        "max_tokens": 20,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    }


def test_system_messages_stand_apart_wherever_they_were() -> None:
    later = {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]}
    asked = body_of({"role": "system", "content": "Be brief."}, HELLO, later, {"role": "system", "content": ""})
    assert asked["system"] == "Be brief.\n\nBe kind."
    assert [turn["role"] for turn in asked["messages"]] == ["user"]


def test_turns_alternate_and_a_tools_result_is_in_the_users() -> None:
    asked = body_of(
        HELLO,
        {"role": "user", "content": "Are you there?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "22 degrees"},
        {"role": "user", "content": "Thanks."},
    )
    assert asked["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "Are you there?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "22 degrees"}]},
                {"type": "text", "text": "Thanks."},
            ],
        },
    ]


def test_empty_texts_are_left_out_and_an_empty_result_is_still_one() -> None:
    asked = body_of(
        HELLO,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
    )
    assert [block["type"] for block in asked["messages"][1]["content"]] == ["tool_use"]
    assert asked["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "c1"}]


def test_images_go_as_data_or_by_address() -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://pictures/cat.png"}},
    ]
    (turn,) = body_of({"role": "user", "content": parts})["messages"]
    assert [block.get("source") for block in turn["content"]] == [
        None,
        {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        {"type": "url", "url": "https://pictures/cat.png"},
    ]


def test_an_image_that_is_neither_is_refused_by_its_place() -> None:
    part = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
    with pytest.raises(BadInput, match="image") as told:
        body_of(HELLO, {"role": "user", "content": [part]})
    assert told.value.param == "messages[1].content[0].image_url.url"


@pytest.mark.parametrize("arguments", ["{", "[1]", '"text"'])
def test_arguments_that_are_no_object_are_refused_by_their_place(arguments: str) -> None:
    call = {**CALL, "function": {"name": "weather", "arguments": arguments}}
    with pytest.raises(BadInput, match="JSON object") as told:
        body_of(HELLO, {"role": "assistant", "content": None, "tool_calls": [call]})
    assert told.value.param == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize("messages", [[{"role": "system", "content": "x"}], [{"role": "assistant", "content": "x"}]])
def test_a_conversation_begins_with_the_user(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(BadInput, match="begins with a user"):
        body_of(*messages)


def test_sampling_is_passed_on_in_anthropics_range() -> None:
    asked = body_of(HELLO, sampling=Sampling(5, 0.5, 0.9, stop=("a",)))
    assert (asked["temperature"], asked["top_p"], asked["stop_sequences"]) == (0.5, 0.9, ["a"])
    with pytest.raises(BadInput, match="0 to 1") as told:
        body_of(HELLO, sampling=Sampling(5, 1.5))
    assert told.value.param == "temperature"


def test_functions_become_tools_with_an_input_schema() -> None:
    asked = body_of(HELLO, tools=(WEATHER, Tool("noon", parameters={}, strict=True)))
    assert asked["tools"] == [
        {"name": "weather", "description": "Of a city", "input_schema": WEATHER.parameters},
        {"name": "noon", "input_schema": {"type": "object"}, "strict": True},
    ]
    assert asked["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolChoice("auto"), {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("required"), {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice("function", "weather"), {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}),
        (ToolChoice("none"), {"type": "none"}),
    ],
)
def test_a_choice_of_functions_is_translated(choice: ToolChoice, written: dict[str, Any]) -> None:
    assert body_of(HELLO, tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=False)["tool_choice"] == written


def test_user_and_effort_have_their_places_and_other_fields_none() -> None:
    asked = body_of(HELLO, passed_on={"user": "u1", "reasoning_effort": "low", "store": True})
    assert (asked["metadata"], asked["output_config"]) == ({"user_id": "u1"}, {"effort": "low"})
    assert "store" not in asked
    assert "output_config" not in body_of(HELLO, passed_on={"reasoning_effort": "minimal"})


def test_a_schema_is_sent_where_the_entry_says_that_the_model_has_them() -> None:
    work = Conversation([HELLO], constraint=Constraint({"type": "object"}))
    written = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    assert messages_body(work, model(can=["json_schema"]))["output_config"] == written
    with pytest.raises(Unsupported, match="json_schema"):
        messages_body(work, model())


@pytest.mark.parametrize(
    "work",
    [
        Conversation([HELLO], n=2),
        Conversation([HELLO], Sampling(logprobs=1)),
        Conversation([HELLO], Sampling(presence_penalty=1)),
        Conversation([HELLO], Sampling(logit_bias={1: 1})),
        Conversation([HELLO], constraint=Constraint()),
    ],
)
def test_what_the_api_lacks_is_refused(work: Conversation) -> None:
    with pytest.raises(Unsupported):
        messages_body(work, model())
