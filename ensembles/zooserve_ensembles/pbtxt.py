"""Protobuf as the text that a person would have written: one tensor a line, short items on one line, comments."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

__all__ = ["comment", "pbtxt"]

WIDTH = 120
LEADING = ("name", "platform", "backend", "version_policy", "max_batch_size", "input", "output", "instance_group")
TRAILING = ("parameters", "ensemble_scheduling", "dynamic_batching", "response_cache", "model_warmup")
EXPLICIT = {"timeout_action"}
"""Said even where it is the default, which a reader does not know by heart."""

Comments = Mapping[str, str]
Field = Any
Message = Any


def pbtxt(config: Message, comments: Comments) -> str:
    """The text of a model configuration; a comment stands above the field, or in the step, that it is named after."""
    fields = sorted(_fields(config), key=lambda pair: _place(pair[0].name))
    return "".join(f"{line}\n" for field, value in fields for line in _field(field, value, comments, ""))


def comment(text: str, indent: str = "") -> list[str]:
    """A text as comment lines, none for an empty one."""
    return textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _place(name: str) -> int:
    """Where a field stands: what a model is comes first, how it is run last."""
    if name in LEADING:
        return LEADING.index(name)
    return len(LEADING) + 1 + TRAILING.index(name) if name in TRAILING else len(LEADING)


def _field(field: Field, value: Any, comments: Comments, indent: str) -> Iterator[str]:
    yield from comment(comments.get(field.name, ""), indent)
    if _is_map(field):
        for key in sorted(value):  # protobuf keeps no order of its own
            yield from comment(comments.get(key, ""), indent)
            yield from _map_entry(field, key, value[key], indent)
    elif not _is_message(field):
        yield f"{indent}{_plain(field, value)}"
    elif _is_list(field):
        yield f"{indent}{field.name} ["
        for number, item in enumerate(value, 1):
            *lines, last = _item(item, comments, indent + "  ")
            yield from lines
            yield f"{last}," if number < len(value) else last
        yield f"{indent}]"
    else:
        yield f"{indent}{field.name} {{"
        yield from _body(value, comments, indent + "  ")
        yield f"{indent}}}"


def _map_entry(field: Field, key: str, value: Any, indent: str) -> Iterator[str]:
    """An entry of a map: on one line if it fits."""
    line = f"{indent}{field.name} {_entry(field, key, value)}"
    if len(line) <= WIDTH:
        yield line
        return
    before, after = _key_and_value(field, key, value)
    yield from (f"{indent}{field.name} {{", f"{indent}  {before}", f"{indent}  {after}", f"{indent}}}")


def _item(message: Message, comments: Comments, indent: str) -> list[str]:
    """An item of a list: on one line if it is short and simple."""
    inline = f"{indent}{_inline(message)}"
    if len(inline) < WIDTH and _messages_in(message) <= 1:
        return [inline]
    about = comment(comments.get(getattr(message, "model_name", ""), ""), indent + "  ")
    return [f"{indent}{{", *about, *_body(message, comments, indent + "  "), f"{indent}}}"]


def _body(message: Message, comments: Comments, indent: str) -> Iterator[str]:
    for field, value in _fields(message):
        yield from _field(field, value, comments, indent)


def _messages_in(message: Message) -> int:
    sizes = (len(value) if _is_list(field) else 1 for field, value in _fields(message) if _is_message(field))
    return sum(sizes)


def _inline(message: Message) -> str:
    return f"{{ {' '.join(part for field, value in _fields(message) for part in _inline_field(field, value))} }}"


def _inline_field(field: Field, value: Any) -> Iterator[str]:
    if _is_map(field):
        yield from (f"{field.name} {_entry(field, key, value[key])}" for key in sorted(value))
    elif not _is_message(field):
        yield _plain(field, value)
    elif _is_list(field):
        yield f"{field.name} [ {', '.join(map(_inline, value))} ]"
    else:
        yield f"{field.name} {_inline(value)}"


def _entry(field: Field, key: str, value: Any) -> str:
    return f"{{ {' '.join(_key_and_value(field, key, value))} }}"


def _key_and_value(field: Field, key: str, value: Any) -> tuple[str, str]:
    target = field.message_type.fields_by_name["value"]
    shown = f"value {_inline(value)}" if _is_message(target) else _plain(target, value)
    return f"key: {json.dumps(key)}", shown


def _plain(field: Field, value: Any) -> str:
    if _is_list(field):
        return f"{field.name}: [ {', '.join(_scalar(field, item) for item in value)} ]"
    return f"{field.name}: {_scalar(field, value)}"


def _scalar(field: Field, value: Any) -> str:
    if field.type == FieldDescriptor.TYPE_ENUM:
        name: str = field.enum_type.values_by_number[value].name
        return name
    return json.dumps(value, ensure_ascii=False)


def _fields(message: Message) -> list[tuple[Field, Any]]:
    """What is set, and what is said all the same, in the order of Triton's definition."""
    present = {field.number: (field, value) for field, value in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        if field.name in EXPLICIT:
            present.setdefault(field.number, (field, getattr(message, field.name)))
    return [present[number] for number in sorted(present)]


def _is_message(field: Field) -> bool:
    return bool(field.type == FieldDescriptor.TYPE_MESSAGE)


def _is_list(field: Field) -> bool:
    return bool(field.is_repeated)


def _is_map(field: Field) -> bool:
    return _is_message(field) and bool(field.message_type.GetOptions().map_entry)
