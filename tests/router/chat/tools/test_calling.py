"""What functions make of a conversation, by what its backend can do."""

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from zooserve.catalogue import Backend
from zooserve.errors import Unsupported
from zooserve_router.chat.generation import Constraint, Conversation, Message, Sampling, Tool, ToolChoice
from zooserve_router.chat.tools.calling import constrained, reader_of

NATIVE = Backend(kind="openai")
UNENFORCED = Backend(kind="openai", cannot=frozenset({"tool_choice"}))
SCHEMAS = Backend(kind="openai", cannot=frozenset({"tools", "tool_choice", "json_object"}))
MISTRAL = SCHEMAS.model_copy(update={"tool_family": "mistral"})
LLAMA = SCHEMAS.model_copy(update={"tool_family": "llama3"})
NOTHING = Backend(kind="openai", cannot=frozenset({"tools", "tool_choice", "json_object", "json_schema"}))

WEATHER = Tool(
    "weather",
    "The weather of a place",
    {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}},
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"city": {"enum": ["Paris", "Rome"]}},
    },
    strict=True,
)
CLOCK = Tool("clock")
ASKED: list[Message] = [{"role": "user", "content": "Is it raining?"}]


def conversation(mode: Any = "auto", name: str | None = None, **fields: Any) -> Conversation:
    values = {"messages": ASKED, "tools": (WEATHER, CLOCK), **fields}
    return Conversation(tool_choice=ToolChoice(mode, name), **values)


def schema_of(told: Conversation) -> dict[str, Any]:
    assert told.constraint is not None
    assert told.constraint.schema is not None
    Draft202012Validator.check_schema(told.constraint.schema)
    return dict(told.constraint.schema)


def allows(told: Conversation, answer: Any) -> bool:
    return bool(Draft202012Validator(schema_of(told)).is_valid(answer))


def call(name: str, key: str = "arguments", **arguments: Any) -> dict[str, Any]:
    return {"name": name, key: arguments}


def test_a_backend_that_enforces_the_choice_gets_the_conversation_as_it_is() -> None:
    for mode in ("auto", "required", "none"):
        assert constrained(NATIVE, conversation(mode)) == conversation(mode)
        assert reader_of(NATIVE, conversation(mode)) is None


def test_auto_is_left_to_a_backend_that_writes_calls() -> None:
    assert constrained(UNENFORCED, conversation("auto")) == conversation("auto")
    assert reader_of(UNENFORCED, conversation("auto")) is None


@pytest.mark.parametrize("choice", [("required", None), ("function", "weather")])
def test_a_choice_that_the_backend_does_not_enforce_is_built(choice) -> None:
    told = constrained(UNENFORCED, conversation(*choice))
    assert told.tools == ()
    assert allows(told, call("weather", city="Rome"))
    assert reader_of(UNENFORCED, conversation(*choice)) is not None


def test_none_is_enforced_by_showing_no_functions() -> None:
    for backend in (UNENFORCED, SCHEMAS, NOTHING):
        told = constrained(backend, conversation("none"))
        assert told.tools == ()
        assert told.constraint is None
        assert reader_of(backend, conversation("none")) is None


def test_required_allows_calls_alone() -> None:
    told = constrained(SCHEMAS, conversation("required"))
    assert allows(told, call("weather", city="Paris"))
    assert allows(told, call("clock"))
    assert not allows(told, call("weather", city="Oslo")), "references lead where they led"
    assert not allows(told, call("other"))
    assert not allows(told, {"message": "Yes."})
    assert not allows(told, [call("clock")])


def test_a_named_function_is_the_only_one_shown_and_allowed() -> None:
    told = constrained(SCHEMAS, conversation("function", "weather"))
    assert allows(told, call("weather", city="Paris"))
    assert not allows(told, call("clock"))
    assert "clock" not in told.messages[0]["content"]


def test_auto_allows_a_message_or_a_call() -> None:
    told = constrained(SCHEMAS, conversation("auto"))
    assert allows(told, {"message": "Yes."})
    assert allows(told, call("clock"))
    assert not allows(told, {"message": "Yes.", **call("clock")})


def test_a_message_keeps_to_the_response_format() -> None:
    wanted = conversation("auto", constraint=Constraint({"type": "object", "required": ["rain"]}))
    told = constrained(SCHEMAS, wanted)
    assert allows(told, {"message": {"rain": True}})
    assert not allows(told, {"message": "Yes."})
    assert not allows(told, {"message": {}})
    anything = constrained(SCHEMAS, replace(wanted, constraint=Constraint()))
    assert allows(anything, {"message": {"x": 1}})
    assert not allows(anything, {"message": "Yes."})


def test_a_message_schema_that_refers_to_itself_still_does() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    told = constrained(SCHEMAS, conversation("auto", constraint=Constraint(tree)))
    assert allows(told, {"message": {"next": {"next": {}}}})
    assert not allows(told, {"message": {"next": {"other": {}}}})


def test_data_that_looks_like_a_reference_stays_as_it_is() -> None:
    data = {"$ref": "#/x"}
    tool = Tool("f", parameters={"type": "object", "properties": {"a": {"const": data}, "enum": {"$ref": "#"}}})
    told = constrained(SCHEMAS, conversation("required", tools=(tool,)))
    assert allows(told, call("f", a=data))
    assert not allows(told, call("f", a={"$ref": "#/$defs/call_0/properties/arguments/x"}))
    assert allows(told, call("f", enum={"a": data})), "a property called enum is a schema all the same"


def test_families_write_calls_as_they_were_trained_to() -> None:
    assert allows(constrained(LLAMA, conversation("required")), call("clock", key="parameters"))
    assert allows(constrained(MISTRAL, conversation("required")), [call("clock"), call("weather", city="Rome")])


def test_an_array_of_calls_is_bounded_and_one_without_parallel_calls() -> None:
    several = constrained(MISTRAL, conversation("required"))
    assert allows(several, [call("clock")] * 8)
    assert not allows(several, [call("clock")] * 9)
    assert not allows(several, [])
    one = constrained(MISTRAL, conversation("required", parallel_tool_calls=False))
    assert not allows(one, [call("clock")] * 2)
    assert not allows(constrained(MISTRAL, conversation("function", "clock")), [call("clock")] * 2)


@pytest.mark.parametrize(
    ("backend", "marks"), [(SCHEMAS, "<tools>"), (LLAMA, '"parameters": <object>'), (MISTRAL, "[AVAILABLE_TOOLS] [")]
)
def test_functions_are_told_in_the_familys_words_behind_the_system_message(backend, marks) -> None:
    system = {"role": "system", "content": "Be kind."}
    told = constrained(backend, conversation("auto", messages=[system, *ASKED]))
    assert [message["role"] for message in told.messages] == ["system", "user"]
    content = told.messages[0]["content"]
    assert content.startswith("Be kind.\n\n")
    assert marks in content
    assert json.dumps(WEATHER.parameters) in content
    assert '{"message": <your answer>}' in content


def test_without_a_system_message_there_will_be_one() -> None:
    told = constrained(SCHEMAS, conversation("required"))
    assert [message["role"] for message in told.messages] == ["system", "user"]
    assert '{"message"' not in told.messages[0]["content"]


def test_stop_strings_are_kept_from_a_backend_that_would_match_them_in_json() -> None:
    wanted = conversation("auto", sampling=Sampling(stop=("}",)))
    assert constrained(SCHEMAS, wanted).sampling.stop == ()
    assert constrained(NATIVE, wanted).sampling.stop == ("}",)


def test_probabilities_of_json_that_the_caller_does_not_see_are_refused() -> None:
    with pytest.raises(Unsupported) as refused:
        constrained(SCHEMAS, conversation(sampling=Sampling(logprobs=0)))
    assert refused.value.param == "logprobs"


def test_functions_without_any_grammar_are_refused() -> None:
    with pytest.raises(Unsupported) as refused:
        constrained(NOTHING, conversation())
    assert refused.value.param == "tools"


def test_any_json_object_is_a_schema_where_only_schemas_are_enforced() -> None:
    asked = Conversation(ASKED, constraint=Constraint())
    assert schema_of(constrained(SCHEMAS, asked)) == {"type": "object"}
    assert constrained(NATIVE, asked) == asked


def test_a_schema_that_refers_to_all_of_itself_is_one_that_llama_cpp_can_follow() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    asked = Conversation(ASKED, constraint=Constraint(tree))
    told = constrained(SCHEMAS.model_copy(update={"server": "llama.cpp"}), asked)
    assert '"$ref": "#"' not in json.dumps(schema_of(told))
    assert allows(told, {"next": {"next": {}}})
    assert not allows(told, {"next": {"other": {}}})
    assert constrained(SCHEMAS, asked) == asked
