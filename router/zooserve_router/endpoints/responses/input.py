"""The `input` of /v1/responses: items of several kinds, read as the messages that a chat model answers.

What the assistant said and the functions that it called are items of their own here, and one message there. Reasoning
is read and left out: no template here takes it back, and what another server has encrypted means nothing here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zooserve.errors import BadInput, TooManyItems, Unsupported
from zooserve_router.chat.generation import Message
from zooserve_router.endpoints.asked import function_name
from zooserve_router.payload import Fields, checked_text, kind_of, shown

__all__ = ["Input", "input_in"]

_MAX_ITEMS = 4096
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_STATUSES = ("in_progress", "completed", "incomplete")


@dataclass(frozen=True)
class Input:
    """The messages, and the field of the request that each came from."""

    messages: tuple[Message, ...]
    origins: tuple[str, ...]


def input_in(value: Any, instructions: str | None = None) -> Input:
    """The whole input, `instructions` first. Raises BadInput."""
    transcript = _Transcript()
    if instructions:
        transcript.says("system", checked_text(instructions, "instructions"), "instructions")
    if isinstance(value, str):
        transcript.says("user", checked_text(value, "input"), "input")
        return transcript.whole()
    for index, item in enumerate(_listed(value)):
        _read(Fields.of(item, f"input[{index}]"), transcript, f"input[{index}]")
    return transcript.whole()


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadInput(
            f"`input` is {kind_of(value)}; it must be a string or an array of items.",
            param="input",
            code="invalid_type",
        )
    if not value:
        raise BadInput("`input` is empty; send a string, or at least one item.", param="input", code="empty_array")
    if len(value) > _MAX_ITEMS:
        raise TooManyItems(f"{len(value)} items; at most {_MAX_ITEMS} are read.", param="input")
    return value


class _Transcript:
    """A conversation as it is read, in which every call of a function must be answered."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._origins: list[str] = []
        self._turn: Message | None = None
        """What the assistant said last, while it may still go on: nobody else has spoken since."""
        self._unanswered: dict[str, str] = {}
        """The calls without an output yet, and where each was read."""
        self._called: set[str] = set()

    def whole(self) -> Input:
        """All of it. Raises BadInput for a call that nothing answers."""
        self._refuse_unanswered()
        return Input(tuple(self._messages), tuple(self._origins))

    def says(self, role: str, text: str, origin: str) -> None:
        """Someone speaks. What the assistant says beside its calls is of one message with them."""
        if role == "assistant" and self._unanswered and self._turn is not None:
            self._turn["content"] = (self._turn["content"] or "") + text
            return
        self._refuse_unanswered()
        self._add({"role": role, "content": text}, origin)
        self._turn = self._messages[-1] if role == "assistant" else None

    def calls(self, call_id: str, function: dict[str, str], origin: str) -> None:
        """The assistant calls a function."""
        if call_id in self._called:
            raise BadInput(
                f"`{origin}.call_id` is {shown(call_id)}, as an earlier call's is; an output could mean either.",
                param=f"{origin}.call_id",
                code="duplicate_call_id",
            )
        if self._turn is None:
            self._add({"role": "assistant", "content": None}, origin)
            self._turn = self._messages[-1]
        call = {"id": call_id, "type": "function", "function": function}
        self._turn.setdefault("tool_calls", []).append(call)
        self._called.add(call_id)
        self._unanswered[call_id] = origin

    def answers(self, call_id: str, text: str, origin: str) -> None:
        """A called function has given its output."""
        if self._unanswered.pop(call_id, None) is None:
            again = call_id in self._called
            raise BadInput(
                f"No tool call found for function call output with call_id {shown(call_id)}: the call "
                f"{'has its output already' if again else 'is not in the input before it'}. Send each `function_call` "
                "item, and then its one `function_call_output`.",
                param=f"{origin}.call_id",
                code="duplicate_tool_result" if again else "tool_result_without_call",
            )
        self._add({"role": "tool", "tool_call_id": call_id, "content": text}, origin)
        if not self._unanswered:
            self._turn = None

    def _add(self, message: Message, origin: str) -> None:
        self._messages.append(message)
        self._origins.append(origin)

    def _refuse_unanswered(self) -> None:
        for call_id, origin in self._unanswered.items():
            raise BadInput(
                f"No tool output found for function call {shown(call_id)}. Send a `function_call_output` item with its "
                "`call_id` before the conversation goes on.",
                param=origin,
                code="tool_call_without_result",
            )


def _read(item: Fields, transcript: _Transcript, origin: str) -> None:
    kind = item.text("type") or ("message" if item.raw("role") is not None else None)
    if kind is None and item.raw("id") is not None:
        kind = "item_reference"
    if kind == "item_reference":
        raise Unsupported(
            f"`{origin}` refers to an item by its id, and nothing is stored here. Send the item itself.",
            param=origin,
            code="item_not_found",
        )
    if kind not in _READERS:
        raise BadInput(
            f"`{origin}.type` is {shown(kind)}; items of these types are read: {', '.join(_READERS)}.",
            param=f"{origin}.type",
        )
    item.choice("status", _STATUSES, default="completed")
    item.text("id")
    _READERS[kind](item, transcript, origin)
    item.refuse_unknown()


def _message(item: Fields, transcript: _Transcript, origin: str) -> None:
    given = item.required("role")
    if not isinstance(given, str) or given not in _ROLES:
        path = f"{origin}.role"
        raise BadInput(f"`{path}` is {shown(given)}; it must be one of: {', '.join(_ROLES)}.", param=path)
    role = _ROLES[given]
    item.choice("phase", ("commentary", "final_answer"), default="final_answer")
    parts = _SAID if role == "assistant" else _HEARD
    transcript.says(role, _content(item.required("content"), f"{origin}.content", parts), origin)


def _function_call(item: Fields, transcript: _Transcript, origin: str) -> None:
    name = function_name(item.required("name"), f"{origin}.name")
    arguments = _text(item.required("arguments"), f"{origin}.arguments")
    _refuse_given(item, ("async", "caller", "namespace"))
    call_id = checked_text(item.required("call_id"), f"{origin}.call_id")
    transcript.calls(call_id, {"name": name, "arguments": arguments}, origin)


def _function_call_output(item: Fields, transcript: _Transcript, origin: str) -> None:
    call_id = checked_text(item.required("call_id"), f"{origin}.call_id")
    item.text("name")
    _refuse_given(item, ("caller", "namespace"))
    transcript.answers(call_id, _content(item.required("output"), f"{origin}.output", _HEARD), origin)


def _reasoning(item: Fields, transcript: _Transcript, origin: str) -> None:
    item.text("encrypted_content")
    for name in ("summary", "content"):
        value, path = item.raw(name), f"{origin}.{name}"
        if not isinstance(value, list | None):
            raise BadInput(f"`{path}` is {kind_of(value)}; it must be an array.", param=path, code="invalid_type")


_READERS: dict[str, Callable[[Fields, _Transcript, str], None]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _reasoning,
}

_HEARD = {"input_text": "text"}
_SAID = {"output_text": "text", "refusal": "refusal"}
_BESIDE_TEXT = {
    "input_text": ("prompt_cache_breakpoint",),
    "output_text": ("annotations", "logprobs"),
    "refusal": (),
}
"""Fields of a part that change nothing here."""


def _content(value: Any, path: str, parts: dict[str, str]) -> str:
    """The text of a string or of an array of parts of these types."""
    if isinstance(value, list):
        if not value:
            raise BadInput(f"`{path}` is an empty array; send text.", param=path, code="empty_array")
        return "".join(_part(Fields.of(part, f"{path}[{index}]"), parts) for index, part in enumerate(value))
    return _text(value, path)


def _part(part: Fields, parts: dict[str, str]) -> str:
    kind, path = part.required("type"), part.path("type")
    if not isinstance(kind, str) or kind not in parts:
        refusal = Unsupported if kind in ("input_image", "input_file", "input_audio") else BadInput
        raise refusal(f"`{path}` is {shown(kind)}; it must be one of: {', '.join(parts)}.", param=path)
    for name in _BESIDE_TEXT[kind]:
        part.raw(name)
    text = _text(part.required(parts[kind]), part.path(parts[kind]))
    part.refuse_unknown()
    return text


def _text(value: Any, path: str) -> str:
    """A string without NULs. An empty one is something to say, too: assistants and functions do at times."""
    return checked_text(value, path, may_be_empty=True)


def _refuse_given(item: Fields, names: tuple[str, ...]) -> None:
    for name in names:
        if item.raw(name) not in (None, False):
            raise Unsupported(f"`{item.path(name)}` is not available here; leave it out.", param=item.path(name))
