"""The functions that a request to /v1/responses offers, and the choice among them: flat, where chat nests them."""

from typing import Any

from zooserve.errors import BadInput, Unsupported
from zooserve_router.chat.generation import Tool, ToolChoice
from zooserve_router.endpoints.asked import distinct, listed_tools, tool_choice_asked, tool_choice_in, tool_in
from zooserve_router.payload import Fields, shown

__all__ = ["chosen_tool", "offered_tools", "told_tool"]

_OF_HOSTED_TOOLS = ("allowed_callers", "async", "defer_loading", "output_schema")
"""What a function may say for the tools that OpenAI runs itself."""


def offered_tools(fields: Fields) -> tuple[Tool, ...]:
    """`tools`, every one a function. Raises BadInput."""
    value = fields.raw("tools")
    if value is None:
        return ()
    return distinct([_tool(Fields.of(tool, f"tools[{index}]")) for index, tool in enumerate(listed_tools(value))])


def _tool(tool: Fields) -> Tool:
    _refuse_hosted(tool)
    for name in _OF_HOSTED_TOOLS:
        if tool.raw(name) not in (None, False):
            raise Unsupported(f"`{tool.path(name)}` is not available here; leave it out.", param=tool.path(name))
    return tool_in(tool)


def _refuse_hosted(tool: Fields) -> None:
    kind, path = tool.required_text("type"), tool.path("type")
    if kind != "function":
        raise Unsupported(
            f"`{path}` is {shown(kind)}; nothing here runs such a tool. Tools of type 'function' are available, "
            "which you run yourself.",
            param=path,
        )


def told_tool(tool: Tool) -> dict[str, Any]:
    """A tool as the response repeats it."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }


def chosen_tool(fields: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice]:
    """`tool_choice`, and the tools that it leaves to be called. Raises BadInput."""
    value = fields.raw("tool_choice")
    if not isinstance(value, dict):
        return tool_choice_asked(fields, tools)
    choice = Fields.of(value, "tool_choice")
    if choice.text("type") == "allowed_tools":
        return _allowed(choice, tools)
    _refuse_hosted(choice)
    return tools, tool_choice_in(choice, tools)


def _allowed(choice: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The others are not shown to the model at all, so that it cannot call them."""
    required = choice.choice("mode", ("auto", "required"), default="auto") == "required"
    path = choice.path("tools")
    listed = listed_tools(choice.required("tools"), path)
    if not listed:
        raise BadInput(f"`{path}` is empty; name a tool that may be called.", param=path, code="empty_array")
    names = {_name(Fields.of(entry, f"{path}[{index}]"), tools) for index, entry in enumerate(listed)}
    choice.refuse_unknown()
    return tuple(tool for tool in tools if tool.name in names), ToolChoice("required" if required else "auto")


def _name(entry: Fields, tools: tuple[Tool, ...]) -> str | None:
    _refuse_hosted(entry)
    return tool_choice_in(entry, tools).name
