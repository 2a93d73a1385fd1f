"""What an upstream that speaks OpenAI's API is sent: what was asked, in its server's words, and nothing else."""

from typing import Any

import pytest

from zooserve.catalogue import CAPABILITIES, Backend, Limits, Model
from zooserve.errors import Unsupported
from zooserve_router.backends.openai_request import chat_body, completion_body
from zooserve_router.chat.generation import Constraint, Conversation, Generation, Sampling, Tool, ToolChoice

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = Tool("weather", "Of a city", {"type": "object", "properties": {"city": {"type": "string"}}}, strict=True)


def model(**backend: Any) -> Model:
    given = Backend(**{"kind": "openai", "url": "http://upstream/v1", **backend})
    limits = Limits(max_tokens=400)
    return Model(
        name="ours", task="chat", runs_on="upstream", backend=given, limits=limits, licence="none", source="a test"
    )


def test_a_plain_chat_asks_for_nothing_but_a_stream_with_its_usage() -> None:
    assert chat_body(Conversation(HELLO, Sampling(20, seed=7)), model(model="gpt")) == {
        "model": "gpt",
        "messages": HELLO,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 20,
        "seed": 7,
    }


def test_without_a_name_over_there_the_public_one_is_used() -> None:
    assert chat_body(Conversation(HELLO), model())["model"] == "ours"


def test_everything_that_changes_the_answer_is_passed_on() -> None:
    sampling = Sampling(
        20, 0.5, 0.9, frequency_penalty=1.5, presence_penalty=-1, stop=("a", "b"), logprobs=3, logit_bias={5: -100}
    )
    asked = chat_body(Conversation(HELLO, sampling, n=2, passed_on={"user": "u1", "reasoning_effort": "low"}), model())
    expected = {
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 1.5,
        "presence_penalty": -1,
        "stop": ["a", "b"],
        "logprobs": True,
        "top_logprobs": 3,
        "logit_bias": {"5": -100},
        "n": 2,
        "user": "u1",
        "reasoning_effort": "low",
    }
    assert {name: asked[name] for name in expected} == expected


def test_fields_that_are_passed_on_replace_none_of_ours() -> None:
    asked = chat_body(Conversation(HELLO, passed_on={"stream": False, "model": "dearer", "max_tokens": 9}), model())
    assert (asked["stream"], asked["model"], asked["max_completion_tokens"]) == (True, "ours", 1)


def test_functions_and_their_choice_are_written_as_openai_has_them() -> None:
    asked = chat_body(Conversation(HELLO, tools=(WEATHER, Tool("noon"))), model())
    assert [tool["function"] for tool in asked["tools"]] == [
        {"name": "weather", "description": "Of a city", "parameters": WEATHER.parameters, "strict": True},
        {"name": "noon", "parameters": {"type": "object", "properties": {}}},
    ]
    assert not {"tool_choice", "parallel_tool_calls"} & set(asked)


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("function", "weather"), {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_a_choice_of_functions_is_passed_on(choice: ToolChoice, written: Any) -> None:
    work = Conversation(HELLO, tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=False)
    asked = chat_body(work, model())
    assert (asked["tool_choice"], asked["parallel_tool_calls"]) == (written, False)


def test_without_functions_nothing_is_said_of_their_choice() -> None:
    asked = chat_body(Conversation(HELLO, tool_choice=ToolChoice("none"), parallel_tool_calls=False), model())
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(asked)


def test_a_schema_is_what_the_answer_is_held_to() -> None:
    held = chat_body(Conversation(HELLO, constraint=Constraint({"type": "object"}, "city", "A city")), model())
    schema = {"name": "city", "schema": {"type": "object"}, "strict": True, "description": "A city"}
    assert held["response_format"] == {"type": "json_schema", "json_schema": schema}
    free = chat_body(Conversation(HELLO, constraint=Constraint()), model())
    assert free["response_format"] == {"type": "json_object"}


def test_a_server_with_defaults_of_its_own_is_told_openais() -> None:
    plain = Conversation(HELLO, Sampling(5))
    for server in ("vllm", "sglang"):
        asked = chat_body(plain, model(server=server))
        assert (asked["temperature"], asked["top_p"]) == (1.0, 1.0)
    for server in ("openai", "trtllm"):
        assert not {"temperature", "top_p"} & set(chat_body(plain, model(server=server)))


def test_a_server_that_nobody_knows_is_told_the_bound_by_its_older_name() -> None:
    asked = chat_body(Conversation(HELLO, Sampling(5)), model(server="other"))
    assert (asked["max_tokens"], asked["temperature"]) == (5, 1.0)
    assert "max_completion_tokens" not in asked


def test_llama_cpp_samples_from_what_the_request_names_alone() -> None:
    asked = chat_body(Conversation(HELLO, Sampling(5, seed=2**32 + 3)), model(server="llama.cpp"))
    assert (asked["top_k"], asked["min_p"], asked["temperature"], asked["top_p"]) == (0, 0.0, 1.0, 1.0)
    assert asked["seed"] == 4  # it has seeds of 32 bits, of which the largest means "choose one"
    assert "repeat_last_n" not in asked
    assert asked["return_progress"]  # else a client that leaves while its prompt is read is noticed too late
    penalised = chat_body(Conversation(HELLO, Sampling(5, presence_penalty=1)), model(server="llama.cpp"))
    assert penalised["repeat_last_n"] == 400  # the whole context, not the last 64 tokens


def test_a_server_without_seeds_gets_none() -> None:
    assert "seed" not in chat_body(Conversation(HELLO), model(cannot=["seed"]))


def test_a_raw_prompt_goes_as_it_is() -> None:
    asked = completion_body(Generation("Once upon", Sampling(9, 0.0, stop=(".",), logprobs=2)), model(server="vllm"))
    expected = {"prompt": "Once upon", "max_tokens": 9, "temperature": 0.0, "stop": ["."], "logprobs": 2}
    assert {name: asked[name] for name in expected} == expected
    assert "messages" not in asked


def test_fields_that_are_passed_on_with_a_raw_prompt_replace_none_of_ours() -> None:
    asked = completion_body(Generation("Hi", passed_on={"user": "u1", "prompt": "Ho", "stream": False}), model())
    assert (asked["user"], asked["prompt"], asked["stream"]) == ("u1", "Hi", True)


@pytest.mark.parametrize(
    ("lacking", "work"),
    [
        ("json_object", Conversation(HELLO, constraint=Constraint())),
        ("json_schema", Conversation(HELLO, constraint=Constraint({}))),
        ("logit_bias", Conversation(HELLO, Sampling(logit_bias={1: 1}))),
        ("logprobs", Conversation(HELLO, Sampling(logprobs=0))),
        ("n", Conversation(HELLO, n=2)),
        ("penalties", Conversation(HELLO, Sampling(presence_penalty=1))),
        ("tool_choice", Conversation(HELLO, tools=(WEATHER,), tool_choice=ToolChoice("required"))),
        ("tools", Conversation(HELLO, tools=(WEATHER,))),
    ],
)
def test_what_the_server_lacks_is_never_sent(lacking: str, work: Conversation) -> None:
    assert lacking in CAPABILITIES["openai"]
    with pytest.raises(Unsupported, match=f"'{lacking}' is not available with ours"):
        chat_body(work, model(cannot=[lacking]))
    assert chat_body(work, model())


def test_a_server_without_raw_prompts_gets_none() -> None:
    with pytest.raises(Unsupported, match="completions"):
        completion_body(Generation("Once"), model(cannot=["completions"]))


def test_an_adapter_is_refused_where_it_would_be_another_model() -> None:
    with pytest.raises(Unsupported, match="no adapters"):
        completion_body(Generation("Once", lora="poet"), model())
