"""The `messages` of a chat request: checked one by one, and that every tool call has its one result.

What comes out is OpenAI's shape again: content is one string, or a list of parts where an image is among them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from zooserve.errors import BadInput, TooManyItems, Unsupported
from zooserve_router.chat.generation import Message
from zooserve_router.endpoints.asked import function_name
from zooserve_router.payload import Fields, checked_text, kind_of, shown

__all__ = ["Message", "image_url", "messages_in", "refuse_unpaired_results"]

_MAX_MESSAGES = 4096
_MAX_CALLS = 128
_MAX_PARTS = 1024
"""Of one message: each is looked at by itself, and a hundred thousand hold the event loop up for half a second."""
_MAX_ARGUMENTS = 1024 * 1024
_MAX_IMAGES = 32
_MAX_URL = 8192
_MAX_INLINE_IMAGE = 8 * 2**20
_DATA_URL = re.compile(r"data:image/(png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_FETCHED_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")


def messages_in(value: Any) -> list[Message]:
    """The messages; `developer` is what newer clients call `system`. Raises BadInput."""
    if not isinstance(value, list):
        raise BadInput(f"`messages` is {kind_of(value)}; it must be an array.", param="messages", code="invalid_type")
    if not value:
        raise BadInput("`messages` is empty; send at least one message.", param="messages", code="empty_array")
    if len(value) > _MAX_MESSAGES:
        raise TooManyItems(f"{len(value)} messages; at most {_MAX_MESSAGES} are read.", param="messages")
    messages = [_message(Fields.of(message, f"messages[{index}]")) for index, message in enumerate(value)]
    _refuse_many_images(messages)
    refuse_unpaired_results(messages, [f"messages[{index}]" for index in range(len(messages))])
    return messages


def _message(fields: Fields) -> Message:
    role = fields.raw("role")
    if role == "function":
        raise Unsupported(
            f"`{fields.path('role')}` 'function' is not available: it is what 'tool' was called before.",
            param=fields.path("role"),
        )
    if not isinstance(role, str) or role not in _READERS:
        path = fields.path("role")
        raise BadInput(f"`{path}` is {shown(role)}; it must be one of: {', '.join(_READERS)}.", param=path)
    message = {"role": "system" if role == "developer" else role, **_READERS[role](fields)}
    if (name := fields.raw("name")) is not None:
        message["name"] = checked_text(name, fields.path("name"))
    fields.refuse_unknown()
    return message


def _told(fields: Fields) -> Message:
    return {"content": _text(fields)}


def _of_user(fields: Fields) -> Message:
    return {"content": _content(fields)}


def _of_assistant(fields: Fields) -> Message:
    """What the model said before: text, or calls, or both, or why it refused."""
    for name in ("audio", "function_call"):
        if fields.raw(name) is not None:
            path = fields.path(name)
            raise Unsupported(f"`{path}` is not available here; send text and `tool_calls`.", param=path)
    # What an answer carries besides, and the SDK's reading of it; no template here takes thoughts back.
    for name in ("annotations", "parsed", "reasoning_content"):
        fields.raw(name)
    refusal = fields.text("refusal")
    calls = _tool_calls(fields)
    if fields.raw("content") is None and refusal is not None:
        return {"content": refusal}  # what OpenAI's own refusals look like when a history is sent back
    if not calls:
        return {"content": _text(fields)}
    return {"content": None if fields.raw("content") is None else _text(fields), "tool_calls": calls}


def _of_tool(fields: Fields) -> Message:
    call = checked_text(fields.required("tool_call_id"), fields.path("tool_call_id"))
    return {"content": _text(fields), "tool_call_id": call}


_READERS: dict[str, Callable[[Fields], Message]] = {
    "system": _told,
    "developer": _told,
    "user": _of_user,
    "assistant": _of_assistant,
    "tool": _of_tool,
}


def _tool_calls(fields: Fields) -> list[dict[str, Any]]:
    value, path = fields.raw("tool_calls"), fields.path("tool_calls")
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"`{path}` is {kind_of(value)}; it must be an array.", param=path, code="invalid_type")
    if len(value) > _MAX_CALLS:
        raise TooManyItems(f"`{path}` has {len(value)} calls; at most {_MAX_CALLS} are read.", param=path)
    calls = [_tool_call(Fields.of(call, f"{path}[{index}]")) for index, call in enumerate(value)]
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids):
        raise BadInput(f"`{path}` has two calls of the same `id`; each needs one of its own.", param=path)
    return calls


def _tool_call(call: Fields) -> dict[str, Any]:
    called = checked_text(call.required("id"), call.path("id"))
    if call.required("type") != "function":
        path = call.path("type")
        raise BadInput(f"`{path}` is {shown(call.raw('type'))}; it must be 'function'.", param=path)
    function = Fields.of(call.required("function"), call.path("function"))
    name = function_name(function.required("name"), function.path("name"))
    arguments = _arguments(function)
    function.raw("parsed_arguments")  # the SDK's reading of them, which comes along when a parsed answer is sent back
    call.raw("index")  # its place in the stream that it was put together from
    function.refuse_unknown()
    call.refuse_unknown()
    return {"id": called, "type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(function: Fields) -> str:
    """As the model wrote them, which need not be JSON."""
    path = function.path("arguments")
    text = checked_text(function.required("arguments"), path, may_be_empty=True)
    if len(text) > _MAX_ARGUMENTS:
        raise BadInput(f"`{path}` has {len(text)} characters; at most {_MAX_ARGUMENTS} are read.", param=path)
    return text


def refuse_unpaired_results(messages: Sequence[Message], params: Sequence[str]) -> None:
    """Raise BadInput unless each tool call is answered once, right after it, and nothing else is answered.

    `params` is where in the request each message came from.
    """
    open_ids: list[str] = []
    answered: set[str] = set()
    caller = ""
    for message, param in zip(messages, params, strict=True):
        if message["role"] == "tool":
            _refuse_stray_result(message["tool_call_id"], open_ids, answered, param)
            answered.add(message["tool_call_id"])
            continue
        _refuse_unanswered(open_ids, answered, caller)
        open_ids = [call["id"] for call in message.get("tool_calls", ())]
        answered, caller = set(), param
    _refuse_unanswered(open_ids, answered, caller)


def _refuse_stray_result(call: str, open_ids: list[str], answered: set[str], param: str) -> None:
    path = f"{param}.tool_call_id"
    if not open_ids:
        raise BadInput(
            f"`{param}` is a tool result without a call: messages with role 'tool' must follow a message with "
            "'tool_calls'.",
            param=path,
            code="tool_result_without_call",
        )
    if call not in open_ids:
        raise BadInput(
            f"`{path}` is {shown(call)}, which is not among the 'tool_calls' of the message before: "
            f"{', '.join(open_ids)[:200]}.",
            param=path,
            code="tool_result_without_call",
        )
    if call in answered:
        raise BadInput(
            f"`{path}` is {shown(call)}, which an earlier message has answered already.",
            param=path,
            code="duplicate_tool_result",
        )


def _refuse_unanswered(open_ids: list[str], answered: set[str], caller: str) -> None:
    missing = [call for call in open_ids if call not in answered]
    if missing:
        raise BadInput(
            f"A message with 'tool_calls' must be followed by tool messages that answer each of them. Of `{caller}` "
            f"these have none: {', '.join(missing)[:200]}.",
            param=f"{caller}.tool_calls",
            code="tool_call_without_result",
        )


def _text(fields: Fields) -> str:
    """Content of a role that has text only."""
    content, path = _content(fields), fields.path("content")
    if isinstance(content, str):
        return content
    raise BadInput(f"`{path}` holds an image; only messages from user may.", param=path)


def _content(fields: Fields) -> str | list[dict[str, Any]]:
    value, path = fields.raw("content"), fields.path("content")
    if value is None:
        raise BadInput(
            f"`{path}` is missing; send a string, or an array of parts.",
            param=path,
            code="missing_required_parameter",
        )
    if not isinstance(value, list):
        return checked_text(value, path, may_be_empty=True)  # assistants do say nothing at times
    if not value:
        raise BadInput(f"`{path}` is an empty array; send text.", param=path, code="empty_array")
    if len(value) > _MAX_PARTS:
        raise TooManyItems(f"`{path}` has {len(value)} parts; at most {_MAX_PARTS} are read.", param=path)
    parts = [_part(Fields.of(part, f"{path}[{index}]")) for index, part in enumerate(value)]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: Fields) -> dict[str, Any]:
    kind = part.raw("type")
    if not isinstance(kind, str) or kind not in _PARTS:
        raise Unsupported(
            f"`{part.path('type')}` is {shown(kind)}; parts of type {' and '.join(_PARTS)} are read here.",
            param=part.path("type").removesuffix(".type"),
        )
    read = _PARTS[kind](part)
    part.raw("prompt_cache_breakpoint")
    part.refuse_unknown()
    return read


def _text_part(part: Fields) -> dict[str, Any]:
    return {"type": "text", "text": checked_text(part.raw("text"), part.path("text"), may_be_empty=True)}


def _refusal_part(part: Fields) -> dict[str, Any]:
    return {"type": "text", "text": checked_text(part.raw("refusal"), part.path("refusal"), may_be_empty=True)}


def _image_part(part: Fields) -> dict[str, Any]:
    image = Fields.of(part.required("image_url"), part.path("image_url"))
    read = {"url": image_url(image.required("url"), image.path("url"))}
    if image.raw("detail") is not None:
        read["detail"] = image.choice("detail", ("auto", "low", "high"), default="auto")
    image.refuse_unknown()
    return {"type": "image_url", "image_url": read}


_PARTS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "text": _text_part,
    "image_url": _image_part,
    "refusal": _refusal_part,
}


def image_url(value: Any, param: str) -> str:
    """Where an image is, or the image itself. It is fetched by the model's server, never here. Raises BadInput."""
    url = checked_text(value, param)
    is_inline = url.startswith("data:")
    most = _MAX_INLINE_IMAGE if is_inline else _MAX_URL
    if len(url) > most:
        raise BadInput(f"`{param}` has {len(url)} characters; at most {most} are read.", param=param)
    if not (_DATA_URL if is_inline else _FETCHED_URL).fullmatch(url):
        raise BadInput(
            f"`{param}` is {shown(url)}; it must be an http(s) address, or 'data:image/png;base64,…' of a PNG, JPEG, "
            "GIF or WebP.",
            param=param,
        )
    return url


def _refuse_many_images(messages: list[Message]) -> None:
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    images = sum(part["type"] == "image_url" for part in parts)
    if images > _MAX_IMAGES:
        raise TooManyItems(f"{images} images; at most {_MAX_IMAGES} are read.", param="messages")
