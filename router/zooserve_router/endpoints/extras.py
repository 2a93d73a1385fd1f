"""What a request says beside messages and sampling: taken as bookkeeping, passed on to an upstream, or refused.

Nothing of it reaches a leaf. An upstream gets what it knows; docs/chat.md has the whole table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from zooserve.catalogue import Backend, Model
from zooserve.errors import BadInput, Unsupported
from zooserve_router.nesting import is_deeper
from zooserve_router.payload import Fields

__all__ = ["bookkeeping_asked", "extras_asked", "forwarded_headers", "metadata_asked", "passed_on"]

_MAX_PAIRS = 16
_MAX_KEY = 64
_MAX_VALUE = 512
_MAX_LABEL = 512
_MAX_OBJECT_BYTES = 64 * 1024
_MAX_OBJECT_LEVELS = 32

_TIERS = ("auto", "default", "flex", "priority", "scale")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_VERBOSITIES = ("low", "medium", "high")

_INSTEAD: Mapping[str, str] = {
    "audio": "no model here speaks",
    "function_call": "send `tools` and `tool_choice`",
    "functions": "send `tools`",
    "moderation": "ask a classifier at /v1/classify",
}
"""What no model here takes, and what to do instead."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
}
"""Values that ask for nothing, so that every model can do as they say; null always does."""

_AS_IN_CHAT: Mapping[str, str] = {}


def extras_asked(fields: Fields, model: Model) -> dict[str, Any]:
    """The fields to pass on to an upstream. Raises BadInput, or Unsupported for what this model's backend lacks."""
    for name, instead in _INSTEAD.items():
        if not _asks_for_nothing(name, fields.raw(name)):
            raise Unsupported(f"Unsupported parameter: '{name}' is not available here: {instead}.", param=name)
    meant = {name: extra.check(fields, name) for name, extra in _MEANINGFUL.items()}
    return passed_on(model, {**bookkeeping_asked(fields), **meant})


def bookkeeping_asked(fields: Fields) -> dict[str, Any]:
    """Labels for bills, caches and reports, which change no answer. Raises BadInput."""
    asked = {name: extra.check(fields, name) for name, extra in _BOOKKEEPING.items()}
    return {name: value for name, value in asked.items() if value is not None}


def passed_on(model: Model, extras: Mapping[str, Any], named: Mapping[str, str] = _AS_IN_CHAT) -> dict[str, Any]:
    """Of these, what this model's upstream understands. Raises Unsupported for what would have to be dropped.

    `named` is what other APIs than /v1/chat/completions call them, for messages.
    """
    known = {name: value for name, value in extras.items() if value is not None}
    understood = {name: value for name, value in known.items() if _taker(model) in _EXTRAS[name].known_to}
    for name, value in known.items():
        if name in _MEANINGFUL and name not in understood and not _asks_for_nothing(name, value):
            param = named.get(name, name)
            raise Unsupported(
                f"Unsupported parameter: '{param}' is not available with {model.name}: its backend "
                f"({model.chat_backend.kind}) has nothing like it.",
                param=param,
            )
    return understood


def _taker(model: Model) -> str:
    """Who is at the other end: of a backend that speaks OpenAI's API, the program that answers there."""
    backend = model.chat_backend
    return f"{backend.server} over openai" if backend.kind == "openai" else backend.kind


def metadata_asked(fields: Fields, name: str = "metadata") -> dict[str, str] | None:
    """Up to 16 pairs of short strings. Raises BadInput."""
    value = fields.raw(name)
    if value is None:
        return None
    pairs = Fields.of(value, name)
    if len(value) > _MAX_PAIRS:
        raise BadInput(f"`{name}` has {len(value)} pairs; at most {_MAX_PAIRS} are allowed.", param=name)
    for key in value:
        if len(key) > _MAX_KEY:
            raise BadInput(f"A key of `{name}` has {len(key)} characters; at most {_MAX_KEY} are allowed.", param=name)
        text = pairs.text(key) or ""
        if len(text) > _MAX_VALUE:
            raise BadInput(
                f"`{name}.{key}` has {len(text)} characters; at most {_MAX_VALUE} are allowed.", param=f"{name}.{key}"
            )
    return {key: text for key, text in value.items() if text is not None}


def forwarded_headers(headers: Mapping[str, str], backend: Backend) -> dict[str, str]:
    """The caller's headers that the catalogue lets this upstream see; it names no credentials. Raises BadInput."""
    sent = {name.lower(): headers[name] for name in backend.forward_headers if name in headers}
    for name, value in sent.items():
        if not value.isascii():
            raise BadInput(f"The header {name} is not ASCII, and cannot be passed on so. Encode it.", param=name)
    return sent


def _asks_for_nothing(name: str, value: Any) -> bool:
    return value is None or any(type(value) is type(other) and value == other for other in _NEUTRAL.get(name, ()))


def _label(fields: Fields, name: str) -> str | None:
    text = fields.text(name)
    if text is not None and len(text) > _MAX_LABEL:
        raise BadInput(f"`{name}` has {len(text)} characters; at most {_MAX_LABEL} are allowed.", param=name)
    return text


def _flag(fields: Fields, name: str) -> bool | None:
    return None if fields.raw(name) is None else fields.boolean(name, default=False)


def _one_of(*choices: str) -> Callable[[Fields, str], str | None]:
    def check(fields: Fields, name: str) -> str | None:
        return None if fields.raw(name) is None else fields.choice(name, choices, default=choices[0])

    return check


def _object(fields: Fields, name: str) -> dict[str, Any] | None:
    """Passed on as it is: what is in it is the upstream's own matter."""
    value = fields.raw(name)
    if value is None:
        return None
    Fields.of(value, name)
    if is_deeper(value, _MAX_OBJECT_LEVELS):
        raise BadInput(f"`{name}` is nested deeper than {_MAX_OBJECT_LEVELS} levels. Make it flatter.", param=name)
    size = len(orjson.dumps(value))
    if size > _MAX_OBJECT_BYTES:
        raise BadInput(f"`{name}` has {size} bytes; at most {_MAX_OBJECT_BYTES} are passed on.", param=name)
    return dict(value)


def _modalities(fields: Fields, name: str) -> list[str] | None:
    value = fields.raw(name)
    if value not in (None, ["text"]):
        raise Unsupported(f"Unsupported parameter: '{name}'. Answers here are text: leave it out.", param=name)
    return None if value is None else ["text"]


@dataclass(frozen=True)
class _Extra:
    """How a field is read, and which upstreams know it: kinds of backend, or the program where that is OpenAI's API."""

    check: Callable[[Fields, str], Any]
    known_to: tuple[str, ...]


_OPENAI = ("openai over openai",)
_ENGINES = ("llama.cpp over openai", "sglang over openai", "trtllm over openai", "vllm over openai")
_THINKING = ("anthropic", "sglang over openai", "vllm over openai")

# Labels go to those alone that are known to take them: trtllm-serve refuses a body with a field that it does not know.
_BOOKKEEPING: Mapping[str, _Extra] = {
    "metadata": _Extra(metadata_asked, _OPENAI),
    "prompt_cache_key": _Extra(_label, _OPENAI),
    "prompt_cache_retention": _Extra(_label, _OPENAI),
    "safety_identifier": _Extra(_label, _OPENAI),
    "service_tier": _Extra(_one_of(*_TIERS), _OPENAI),
    "store": _Extra(_flag, _OPENAI),
    "user": _Extra(_label, (*_OPENAI, *_ENGINES, "anthropic")),
}
"""Taken with every model."""

_MEANINGFUL: Mapping[str, _Extra] = {
    "modalities": _Extra(_modalities, _OPENAI),
    "prediction": _Extra(_object, _OPENAI),
    "reasoning_effort": _Extra(_one_of(*_EFFORTS), (*_OPENAI, *_THINKING)),
    "verbosity": _Extra(_one_of(*_VERBOSITIES), _OPENAI),
    "web_search_options": _Extra(_object, _OPENAI),
}
"""What changes an answer where the upstream knows it, and is refused where it does not."""

_EXTRAS = {**_BOOKKEEPING, **_MEANINGFUL}
