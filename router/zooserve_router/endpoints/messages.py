"""The `messages` of a chat request: checked one by one, content parts joined."""

from typing import Any

from zooserve.errors import BadInput, TooManyItems, Unsupported
from zooserve_router.payload import checked_text, kind_of, shown, unknown_field

__all__ = ["Message", "messages_in"]

Message = dict[str, Any]

_MAX_MESSAGES = 4096
_FIELDS = {
    "system": {"content", "name"},
    "developer": {"content", "name"},
    "user": {"content", "name"},
    "assistant": {"content", "name", "refusal", "annotations"},
    "tool": {"content", "tool_call_id"},
}
_LATER = {"tool_calls", "function_call", "audio"}


def messages_in(value: Any) -> list[Message]:
    """The messages with plain text content; `developer` is what newer clients call `system`. Raises BadInput."""
    if not isinstance(value, list):
        raise BadInput(f"`messages` is {kind_of(value)}; it must be an array.", param="messages", code="invalid_type")
    if not value:
        raise BadInput("`messages` is empty; send at least one message.", param="messages", code="empty_array")
    if len(value) > _MAX_MESSAGES:
        raise TooManyItems(f"{len(value)} messages; at most {_MAX_MESSAGES} are read.", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(value: Any, param: str) -> Message:
    if not isinstance(value, dict):
        raise BadInput(f"`{param}` is {kind_of(value)}; it must be an object.", param=param, code="invalid_type")
    role = value.get("role")
    if not isinstance(role, str) or role not in _FIELDS:
        raise BadInput(
            f"`{param}.role` is {shown(role)}; it must be one of: {', '.join(_FIELDS)}.", param=f"{param}.role"
        )
    _refuse_fields(value, role, param)
    message = {"role": "system" if role == "developer" else role, "content": _content(value, f"{param}.content")}
    if role == "tool" and value.get("tool_call_id") is None:
        raise BadInput(
            f"`{param}.tool_call_id` is missing.", param=f"{param}.tool_call_id", code="missing_required_parameter"
        )
    for name in ("name", "tool_call_id"):
        if value.get(name) is not None:
            message[name] = checked_text(value[name], f"{param}.{name}")
    return message


def _refuse_fields(value: dict[str, Any], role: str, param: str) -> None:
    for name, given in value.items():
        if name in _LATER and given not in (None, []):
            raise Unsupported(f"`{param}.{name}` is not available with this model.", param=f"{param}.{name}")
        if name not in _FIELDS[role] | _LATER | {"role"}:
            raise unknown_field(
                f"{param}.{name[:64]}", f"Known of a message from {role}: {', '.join(sorted(_FIELDS[role]))}."
            )


def _content(message: dict[str, Any], param: str) -> str:
    value = message.get("content")
    if value is None and message.get("role") == "assistant" and message.get("refusal") is not None:
        value = message["refusal"]  # what OpenAI's own refusals look like when a history is sent back
    if value is None:
        raise BadInput(
            f"`{param}` is missing; send a string, or an array of text parts.",
            param=param,
            code="missing_required_parameter",
        )
    if isinstance(value, list):
        return "".join(_text_part(part, f"{param}[{index}]") for index, part in enumerate(_not_empty(value, param)))
    # An empty string is a message too: assistants do say nothing at times.
    return value if value == "" else checked_text(value, param)


def _not_empty(parts: list[Any], param: str) -> list[Any]:
    if not parts:
        raise BadInput(f"`{param}` is an empty array; send text.", param=param, code="empty_array")
    return parts


def _text_part(part: Any, param: str) -> str:
    if not isinstance(part, dict):
        raise BadInput(f"`{param}` is {kind_of(part)}; it must be an object.", param=param, code="invalid_type")
    kind = part.get("type")
    if kind != "text":
        raise Unsupported(
            f"`{param}` is of type {shown(kind)}; this model reads parts of type 'text' only.", param=param
        )
    unknown = set(part) - {"type", "text", "prompt_cache_breakpoint"}
    if unknown:
        raise unknown_field(f"{param}.{min(unknown)[:64]}", "Known of a text part: text, type.")
    return checked_text(part.get("text"), f"{param}.text")
