"""Forms of answers, tools and their choice: what is wrong with one is named by its place in the body."""

from typing import Any

import pytest

from zooserve_router.chat.generation import Constraint, Tool, ToolChoice

CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
ADD = {"type": "function", "function": {"name": "add"}}
SUB = {"type": "function", "function": {"name": "sub"}}
SCHEMA_AT = "response_format.json_schema.schema"


def form(**schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "form", **schema}}}


def tool(**function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", **function}}]}


def choice(value: Any, *tools: Any) -> dict[str, Any]:
    return {"tools": list(tools or (ADD,)), "tool_choice": value}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def allowed(*tools: Any, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a form of a wrong type": ({"response_format": "json"}, "response_format", "invalid_type"),
    "a form without a type": ({"response_format": {}}, "response_format.type", "missing_required_parameter"),
    "an unknown form": ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    "a form too deep to print": ({"response_format": {"type": [[]]}}, "response_format.type", "invalid_value"),
    "an unknown field of a form": (
        {"response_format": {"type": "text", "mood": 1}},
        "response_format.mood",
        "unknown_parameter",
    ),
    "a form without its schema": (
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    "a schema for plain JSON": (
        {"response_format": {"type": "json_object", "json_schema": {}}},
        "response_format.json_schema",
        "invalid_parameter_combination",
    ),
    "a form without a name": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        "response_format.json_schema.name",
        "missing_required_parameter",
    ),
    "a name with spaces": (form(schema={}, name="my form"), "response_format.json_schema.name", "invalid_value"),
    "a long name": (form(schema={}, name="x" * 65), "response_format.json_schema.name", "invalid_value"),
    "an empty name": (form(schema={}, name=""), "response_format.json_schema.name", "invalid_value"),
    "no schema": (form(), SCHEMA_AT, "missing_required_parameter"),
    "a schema of a wrong type": (form(schema=[]), SCHEMA_AT, "invalid_json_schema"),
    "a schema of no type": (form(schema={"type": "objec"}), SCHEMA_AT, "invalid_json_schema"),
    "a schema that is not strict": (form(schema={"type": "object"}, strict=True), SCHEMA_AT, "invalid_json_schema"),
    "a strictness in words": (form(schema={}, strict="very"), "response_format.json_schema.strict", "invalid_type"),
    "a description of a wrong type": (
        form(schema={}, description=5),
        "response_format.json_schema.description",
        "invalid_type",
    ),
    "a description of megabytes": (
        form(schema={}, description="x" * 20_000),
        "response_format.json_schema.description",
        "invalid_value",
    ),
    "an unknown field beside a schema": (
        form(schema={}, kind=1),
        "response_format.json_schema.kind",
        "unknown_parameter",
    ),
    "tools of a wrong type": ({"tools": {}}, "tools", "invalid_type"),
    "a tool of a wrong type": ({"tools": ["add"]}, "tools[0]", "invalid_type"),
    "a tool of another type": ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_value"),
    "a tool without a function": ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
    "a function without a name": (
        {"tools": [{"type": "function", "function": {}}]},
        "tools[0].function.name",
        "missing_required_parameter",
    ),
    "a function with a point in its name": (tool(name="a.b"), "tools[0].function.name", "invalid_value"),
    "parameters of a wrong type": (tool(parameters=5), "tools[0].function.parameters", "invalid_function_parameters"),
    "parameters that are no object": (
        tool(parameters={"type": "string"}),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "parameters of no type": (
        tool(parameters={"type": "object", "properties": {"a": {"type": "int"}}}),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "strict parameters that are not": (
        tool(parameters={"type": "object", "properties": {}}, strict=True),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "an unknown field of a function": (tool(returns={}), "tools[0].function.returns", "unknown_parameter"),
    "two tools of one name": ({"tools": [ADD, SUB, ADD]}, "tools[2]", "duplicate_tool_name"),
    "very many tools": ({"tools": [named(f"f{index}") for index in range(129)]}, "tools", "too_many_items"),
    "tools in one another": ({"tools": nested(300)}, "tools", "invalid_value"),
    "megabytes of tools": (
        {"tools": [{**ADD, "function": {"name": "a", "description": "x" * 2**20}}]},
        "tools",
        "invalid_value",
    ),
    "an unknown choice": (choice("always"), "tool_choice", "invalid_value"),
    "a choice of a wrong type": (choice(5), "tool_choice", "invalid_type"),
    "a choice of no function": (choice(named("mul")), "tool_choice", "invalid_value"),
    "a choice of nothing": (
        choice({"type": "function"}),
        "tool_choice.function",
        "missing_required_parameter",
    ),
    "an unknown kind of choice": (choice({"type": "custom"}), "tool_choice.type", "invalid_value"),
    "a call demanded without tools": ({"tool_choice": "required"}, "tool_choice", "invalid_parameter_combination"),
    "a function chosen without tools": (
        {"tool_choice": named("add")},
        "tool_choice",
        "invalid_parameter_combination",
    ),
    "no allowed tools": (choice(allowed()), "tool_choice.allowed_tools.tools", "invalid_type"),
    "an allowed tool that is none": (choice(allowed(SUB)), "tool_choice", "invalid_value"),
    "allowed tools in an unknown way": (
        choice(allowed(ADD, mode="never")),
        "tool_choice.allowed_tools.mode",
        "invalid_value",
    ),
    "parallel calls in words": ({"tools": [ADD], "parallel_tool_calls": "yes"}, "parallel_tool_calls", "invalid_type"),
    "old functions": ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    "an old choice": ({"function_call": "auto"}, "function_call", "unsupported_parameter"),
}


@pytest.mark.parametrize("model", ["chat", "remote"])
@pytest.mark.parametrize(("fields", "param", "code"), BAD.values(), ids=BAD)
async def test_what_is_wrong_is_named_whatever_the_model(many, model, fields, param, code) -> None:
    response = await many.chat(model=model, **fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code), error["message"]
    assert error["type"] == "invalid_request_error"
    assert many.leaf.asked == []


async def test_old_functions_are_told_their_new_name(edge) -> None:
    assert "`tools`" in (await edge.chat(functions=[{"name": "f"}])).json()["error"]["message"]


async def test_a_schema_is_blamed_with_the_place_in_it(many) -> None:
    wrong = {"type": "object", "properties": {"a": {"type": "int"}}}
    message = (await many.chat(model="remote", **form(schema=wrong))).json()["error"]["message"]
    assert f"`{SCHEMA_AT}.properties.a.type`" in message


FORMS: dict[str, tuple[Any, Constraint | None]] = {
    "text": ({"type": "text"}, None),
    "nothing": (None, None),
    "any object": ({"type": "json_object"}, Constraint()),
    "a schema": (
        form(schema=CLOSED, description="A form.", strict=True)["response_format"],
        Constraint(CLOSED, "form", "A form.", strict=True),
    ),
    "a loose schema": (
        form(schema={"type": "object"})["response_format"],
        Constraint({"type": "object"}, "form", strict=False),
    ),
}


@pytest.mark.parametrize(("value", "constraint"), FORMS.values(), ids=FORMS)
async def test_a_form_reaches_the_backend(many, value, constraint) -> None:
    response = await many.chat(model="remote", response_format=value)
    assert response.status_code == 200, response.text
    assert many.leaf.asked[0].constraint == constraint


CHOICES: dict[str, tuple[Any, tuple[str, ...], ToolChoice]] = {
    "none": ("none", ("add", "sub"), ToolChoice("none")),
    "auto": ("auto", ("add", "sub"), ToolChoice("auto")),
    "null": (None, ("add", "sub"), ToolChoice("auto")),
    "required": ("required", ("add", "sub"), ToolChoice("required")),
    "one": (named("sub"), ("add", "sub"), ToolChoice("function", "sub")),
    "some": (allowed(SUB), ("sub",), ToolChoice("auto")),
    "some required": (allowed(SUB, ADD, mode="required"), ("add", "sub"), ToolChoice("required")),
}


@pytest.mark.parametrize(("value", "names", "chosen"), CHOICES.values(), ids=CHOICES)
async def test_a_choice_reaches_the_backend(many, value, names, chosen) -> None:
    response = await many.chat(model="remote", **choice(value, ADD, SUB))
    assert response.status_code == 200, response.text
    asked = many.leaf.asked[0]
    assert tuple(tool.name for tool in asked.tools) == names
    assert asked.tool_choice == chosen


PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, CLOSED),
    "null": ({"parameters": None}, CLOSED),
    "anything": ({"parameters": {}}, {"type": "object"}),
    "properties alone": ({"parameters": {"properties": {"a": {}}}}, {"type": "object", "properties": {"a": {}}}),
    "one of several": ({"parameters": {"anyOf": [CLOSED]}}, {"anyOf": [CLOSED]}),
    "an object": ({"parameters": CLOSED, "strict": True}, CLOSED),
}


@pytest.mark.parametrize(("given", "read"), PARAMETERS.values(), ids=PARAMETERS)
async def test_the_arguments_of_a_function_are_an_object(many, given, read) -> None:
    response = await many.chat(model="remote", **tool(description="Does it.", **given))
    assert response.status_code == 200, response.text
    assert many.leaf.asked[0].tools == (Tool("f", "Does it.", read, strict="strict" in given),)
