"""What a request asks of an answer besides its text: to be JSON of some form, to call functions.

/v1/chat/completions nests these fields in its own way, and has functions here that unwrap it; what lies within is read
the same for every API, from `Fields` that know where in the body they stand.
"""

import re
from typing import Any, Literal

import orjson

from zooserve.errors import BadInput, TooManyItems
from zooserve_router.chat.generation import Constraint, Tool, ToolChoice
from zooserve_router.endpoints.schemas import Blame, checked_schema
from zooserve_router.nesting import is_deeper
from zooserve_router.payload import Fields, checked_text, kind_of, shown

__all__ = [
    "constraint_asked",
    "constraint_in",
    "distinct",
    "function_name",
    "listed_tools",
    "parallel_calls_asked",
    "tool_choice_asked",
    "tool_choice_in",
    "tool_in",
    "tools_asked",
]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_TOOLS = 128
_MAX_TOOLS_BYTES = 512 * 1024
_MAX_TOOLS_LEVELS = 128
"""Of nested JSON in all of `tools`: a schema's own bound, and as much again around it."""
_MAX_DESCRIPTION = 16 * 1024
_NO_PARAMETERS = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
_COMPOSED = ("$ref", "allOf", "anyOf", "oneOf")
_FORMATS = ("text", "json_object", "json_schema")
_MODES: dict[str, Literal["none", "auto", "required"]] = {"none": "none", "auto": "auto", "required": "required"}


def constraint_asked(fields: Fields) -> Constraint | None:
    """`response_format` of /v1/chat/completions; None for text."""
    value = fields.raw("response_format")
    if value is None:
        return None
    form = Fields.of(value, "response_format")
    kind = _kind(form, _FORMATS)
    wrapped = form.raw("json_schema")
    form.refuse_unknown()
    if kind == "json_schema":
        return constraint_in(Fields.of(form.required("json_schema"), form.path("json_schema")))
    if wrapped is not None:
        raise BadInput(
            f"`{form.path('json_schema')}` is only allowed with `type` 'json_schema', not {kind!r}.",
            param=form.path("json_schema"),
            code="invalid_parameter_combination",
        )
    return Constraint() if kind == "json_object" else None


def constraint_in(form: Fields) -> Constraint:
    """The form of an answer, from an object with `name`, `schema`, `strict` and `description`."""
    strict = form.boolean("strict", default=False)
    constraint = Constraint(
        schema=checked_schema(form.required("schema"), Blame(form.path("schema")), strict=strict),
        name=function_name(form.required("name"), form.path("name")),
        description=_description(form),
        strict=strict,
    )
    form.refuse_unknown()
    return constraint


def tools_asked(fields: Fields) -> tuple[Tool, ...]:
    """`tools` of /v1/chat/completions."""
    value = fields.raw("tools")
    if value is None:
        return ()
    return distinct([_wrapped_tool(entry, f"tools[{index}]") for index, entry in enumerate(listed_tools(value))])


def listed_tools(value: Any, param: str = "tools") -> list[Any]:
    """The entries of a list of tools, none of them looked at yet. Raises BadInput for too many or too large ones."""
    if not isinstance(value, list):
        raise BadInput(f"`{param}` is {kind_of(value)}; it must be an array.", param=param, code="invalid_type")
    if len(value) > _MAX_TOOLS:
        raise TooManyItems(f"{len(value)} tools; at most {_MAX_TOOLS} are read.", param=param)
    if is_deeper(value, _MAX_TOOLS_LEVELS):
        raise BadInput(f"`{param}` is nested deeper than {_MAX_TOOLS_LEVELS} levels. Make it flatter.", param=param)
    size = len(orjson.dumps(value))
    if size > _MAX_TOOLS_BYTES:
        raise BadInput(f"`{param}` has {size} bytes; at most {_MAX_TOOLS_BYTES} are read.", param=param)
    return value


def _wrapped_tool(value: Any, param: str) -> Tool:
    wrapper = Fields.of(value, param)
    _kind(wrapper, ("function",))
    tool = tool_in(Fields.of(wrapper.required("function"), wrapper.path("function")))
    wrapper.refuse_unknown()
    return tool


def tool_in(function: Fields) -> Tool:
    """A tool, from an object with `name`, `description`, `parameters` and `strict`."""
    strict = function.boolean("strict", default=False)
    name = function_name(function.required("name"), function.path("name"))
    parameters = function.raw("parameters")
    blame = Blame(function.path("parameters"), "invalid_function_parameters")
    tool = Tool(
        name=name,
        description=_description(function),
        parameters=_NO_PARAMETERS if parameters is None else _object_schema(parameters, blame, strict=strict),
        strict=strict,
    )
    function.refuse_unknown()
    return tool


def _object_schema(value: Any, blame: Blame, *, strict: bool) -> dict[str, Any]:
    """The schema of arguments. They are an object even where it does not say so, and a grammar must know."""
    schema = dict(checked_schema(value, blame, strict=strict))
    if schema.get("type", "object") != "object":
        raise blame.refusal("the arguments of a function are an object: `type` must be 'object'.")
    return schema if any(name in schema for name in _COMPOSED) else {"type": "object", **schema}


def distinct(tools: list[Tool], param: str = "tools") -> tuple[Tool, ...]:
    """The tools, no two of one name. Raises BadInput."""
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise BadInput(
                f"`{param}[{index}]` is named {name!r}, as an earlier one is; a call could mean either.",
                param=f"{param}[{index}]",
                code="duplicate_tool_name",
            )
    return tuple(tools)


def tool_choice_asked(fields: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice]:
    """`tool_choice` of /v1/chat/completions, and the tools that it leaves to be called."""
    value = fields.raw("tool_choice")
    if not isinstance(value, dict):
        return tools, _mode(value, tools)
    choice = Fields.of(value, "tool_choice")
    if _kind(choice, ("function", "allowed_tools")) == "function":
        wrapped = Fields.of(choice.required("function"), choice.path("function"))
        named = tool_choice_in(wrapped, tools)
        choice.refuse_unknown()
        return tools, named
    allowed = _allowed(Fields.of(choice.required("allowed_tools"), choice.path("allowed_tools")), tools)
    choice.refuse_unknown()
    return allowed


def tool_choice_in(function: Fields, tools: tuple[Tool, ...], param: str = "tool_choice") -> ToolChoice:
    """The choice of one function, from an object with its `name`. Raises BadInput unless it is among the tools."""
    chosen = ToolChoice("function", _named(function.required("name"), function.path("name"), tools, param))
    function.refuse_unknown()
    return chosen


def _mode(value: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    if value is None:
        return ToolChoice()
    if not isinstance(value, str):
        raise BadInput(
            f"`tool_choice` is {kind_of(value)}; it must be a string or an object.",
            param="tool_choice",
            code="invalid_type",
        )
    if value not in _MODES:
        raise BadInput(
            f"`tool_choice` is {shown(value)}; it must be one of: {', '.join(_MODES)}, or name a function.",
            param="tool_choice",
        )
    if value == "required" and not tools:
        raise _without_tools("tool_choice")
    return ToolChoice(_MODES[value])


def _allowed(allowed: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that may be called. The others are not shown to the model at all, so that it cannot call them."""
    mode = allowed.choice("mode", ("auto", "required"), default="auto")
    listed, path = allowed.required("tools"), allowed.path("tools")
    if not isinstance(listed, list) or not listed:
        raise BadInput(f"`{path}` must be a non-empty array of tools.", param=path, code="invalid_type")
    names = {
        _listed_name(Fields.of(entry, f"{path}[{index}]"), tools) for index, entry in enumerate(listed[:_MAX_TOOLS])
    }
    allowed.refuse_unknown()
    return tuple(tool for tool in tools if tool.name in names), ToolChoice(_MODES[mode])


def _listed_name(entry: Fields, tools: tuple[Tool, ...]) -> str:
    _kind(entry, ("function",))
    function = Fields.of(entry.required("function"), entry.path("function"))
    return _named(function.required("name"), function.path("name"), tools, "tool_choice")


def _named(value: Any, path: str, tools: tuple[Tool, ...], param: str) -> str:
    name = function_name(value, path)
    if not tools:
        raise _without_tools(param)
    if all(tool.name != name for tool in tools):
        known = ", ".join(tool.name for tool in tools[:8])
        raise BadInput(f"`{path}` is {name!r}, which is not among the `tools`: {known}.", param=param)
    return name


def _without_tools(param: str) -> BadInput:
    return BadInput(
        f"`{param}` asks for a function to be called, and there are no `tools`.",
        param=param,
        code="invalid_parameter_combination",
    )


def parallel_calls_asked(fields: Fields) -> bool:
    """Whether one answer may call several functions."""
    return fields.boolean("parallel_tool_calls", default=True)


def function_name(value: Any, param: str) -> str:
    """A name of a function or of a form of answer. Raises BadInput."""
    name = checked_text(value, param)
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"`{param}` is {shown(name)}; it must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -.", param=param
        )
    return name


def _kind(fields: Fields, kinds: tuple[str, ...]) -> str:
    kind = fields.required("type")
    if not isinstance(kind, str) or kind not in kinds:
        path = fields.path("type")
        raise BadInput(f"`{path}` is {shown(kind)}; it must be one of: {', '.join(kinds)}.", param=path)
    return kind


def _description(fields: Fields) -> str | None:
    text = fields.text("description")
    if text is not None and len(text) > _MAX_DESCRIPTION:
        path = fields.path("description")
        raise BadInput(f"`{path}` has {len(text)} characters; at most {_MAX_DESCRIPTION} are read.", param=path)
    return text
