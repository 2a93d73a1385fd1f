"""What a conversation with functions asks of a backend that cannot call them by itself: one answer under a schema."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zooserve.catalogue import Backend
from zooserve.errors import Unsupported
from zooserve_router.chat.ask import PieceReader
from zooserve_router.chat.generation import Constraint, Conversation
from zooserve_router.chat.tools.families import FAMILIES
from zooserve_router.chat.tools.reading import ToolReader
from zooserve_router.chat.tools.shapes import MAX_CALLS, answer_schema, with_named_root
from zooserve_router.chat.tools.telling import with_history_told, with_tools_told

__all__ = ["constrained", "reader_of"]

_ANY_TEXT: Mapping[str, Any] = {"type": "string"}
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def constrained(backend: Backend, wanted: Conversation) -> Conversation:
    """The same conversation, as far as this backend needs it told: what its own features cannot enforce, a schema does.

    Raises Unsupported for calls that no grammar of the backend can be held to.
    """
    if wanted.tools and wanted.tool_choice.mode == "none" and not backend.features >= {"tools", "tool_choice"}:
        wanted = replace(wanted, tools=())  # what is not shown is not called
    if wanted.tools and not _writes_calls(backend, wanted):
        return _with_calls_built(backend, wanted)
    told = _history_told(backend, wanted)
    return replace(told, constraint=_grammar_of(backend, wanted.constraint))


def reader_of(backend: Backend, wanted: Conversation) -> PieceReader | None:
    """How the answer to the constrained conversation is read; None where the backend's own form is the caller's."""
    if not wanted.tools or wanted.tool_choice.mode == "none" or _writes_calls(backend, wanted):
        return None
    return ToolReader(
        family=FAMILIES[backend.tool_family],
        stop=wanted.sampling.stop,
        raw_message=wanted.constraint is not None,
    )


def _writes_calls(backend: Backend, wanted: Conversation) -> bool:
    """Whether the backend itself does what the tool choice asks."""
    enforced = wanted.tool_choice.mode == "auto" or "tool_choice" in backend.features
    return "tools" in backend.features and enforced


def _with_calls_built(backend: Backend, wanted: Conversation) -> Conversation:
    if "json_schema" not in backend.features:
        raise Unsupported(
            "Unsupported parameter: 'tools' is not available with this model: its backend cannot be held to a schema.",
            param="tools",
        )
    if wanted.sampling.logprobs is not None:
        raise Unsupported(
            "Unsupported parameter: 'logprobs' is not available together with 'tools' with this model, which writes "
            "calls as JSON that you do not get to see.",
            param="logprobs",
        )
    family, choice = FAMILIES[backend.tool_family], wanted.tool_choice
    tools = tuple(tool for tool in wanted.tools if choice.mode != "function" or tool.name == choice.name)
    message = _message_schema(wanted.constraint) if choice.mode == "auto" else None
    most = MAX_CALLS if wanted.parallel_tool_calls and choice.mode != "function" else 1
    schema = answer_schema(family, tools, most=most, message=message)
    return replace(
        wanted,
        messages=with_tools_told(with_history_told(wanted.messages, family), family, tools, choice),
        sampling=replace(wanted.sampling, stop=()),
        constraint=Constraint(schema, name="calls"),
        tools=(),
    )


def _message_schema(constraint: Constraint | None) -> Mapping[str, Any]:
    if constraint is None:
        return _ANY_TEXT
    return constraint.schema if constraint.schema is not None else _ANY_OBJECT


def _history_told(backend: Backend, wanted: Conversation) -> Conversation:
    """A chat template of ours may know calls by itself, and says so where not; an upstream's might drop them."""
    if "tools" in backend.features or not backend.is_upstream:
        return wanted
    return replace(wanted, messages=with_history_told(wanted.messages, FAMILIES[backend.tool_family]))


def _grammar_of(backend: Backend, constraint: Constraint | None) -> Constraint | None:
    """The same constraint in words that the backend enforces."""
    if constraint is None:
        return None
    if constraint.schema is None:
        only_schemas = "json_object" not in backend.features
        return replace(constraint, schema=_ANY_OBJECT) if only_schemas else constraint
    return (
        replace(constraint, schema=with_named_root(constraint.schema)) if backend.server == "llama.cpp" else constraint
    )
