"""What of a request a model's backend must be able to do: one table, and one refusal that says which models can.

What a backend lacks is refused by name. It is never dropped, and never merely prompted for.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from zooserve.catalogue import Catalogue, Feature, Model
from zooserve.errors import Unsupported
from zooserve_router.chat.generation import Conversation, Message

__all__ = [
    "COMPLETIONS",
    "SEED",
    "Need",
    "needs_of",
    "refuse_lacking",
]


@dataclass(frozen=True)
class Need:
    """Something that a request may ask for. Any one of `features` allows it; `what` completes "cannot …"."""

    features: tuple[Feature, ...]
    what: str

    def met_by(self, model: Model) -> bool:
        """Whether this model's backend can do it."""
        return any(feature in model.chat_backend.features for feature in self.features)


COMPLETIONS = Need(("completions",), "complete a raw prompt; call it at /v1/chat/completions")
SEED = Need(("seed",), "draw the same answer again from a seed")
_IMAGES = Need(("images",), "read images")
_JSON_OBJECT = Need(("json_object", "json_schema"), "hold an answer to JSON")
_JSON_SCHEMA = Need(("json_schema",), "hold an answer to a JSON schema")
_LOGIT_BIAS = Need(("logit_bias",), "bias tokens")
_LOGPROBS = Need(("logprobs",), "report the probabilities of tokens")
_PENALTIES = Need(("penalties",), "penalise tokens that are there already")
# Without an engine that writes tool calls itself, the router builds them on a schema.
_TOOLS = Need(("tools", "json_schema"), "call functions")
_FORCED_TOOLS = Need(("tool_choice", "json_schema"), "be made to call a function")

_SHOWS: tuple[tuple[str, Need, Callable[[Conversation], bool]], ...] = (
    ("frequency_penalty", _PENALTIES, lambda wanted: wanted.sampling.frequency_penalty != 0),
    ("presence_penalty", _PENALTIES, lambda wanted: wanted.sampling.presence_penalty != 0),
    ("logit_bias", _LOGIT_BIAS, lambda wanted: bool(wanted.sampling.logit_bias)),
    ("logprobs", _LOGPROBS, lambda wanted: wanted.sampling.logprobs is not None),
    ("tools", _TOOLS, lambda wanted: bool(wanted.tools)),
    ("tool_choice", _FORCED_TOOLS, lambda wanted: wanted.tool_choice.mode in ("required", "function")),
    ("response_format", _JSON_OBJECT, lambda wanted: _form(wanted) == "object"),
    ("response_format", _JSON_SCHEMA, lambda wanted: _form(wanted) == "schema"),
)
"""The parameters of /v1/chat/completions, what they need, and when a request has them."""


def needs_of(wanted: Conversation) -> Iterator[tuple[str, Need]]:
    """Everything that the request needs, each with the parameter that asks for it.

    Parameters are named as in /v1/chat/completions; seeds are not told, since one is drawn where none is sent.
    """
    for param, need, shows in _SHOWS:
        if shows(wanted):
            yield param, need
    for index, message in enumerate(wanted.messages):
        if message.get("tool_calls"):
            yield f"messages[{index}].tool_calls", _TOOLS
        for place in _images_of(message):
            yield f"messages[{index}].content[{place}]", _IMAGES


def _form(wanted: Conversation) -> Literal["text", "object", "schema"]:
    if wanted.constraint is None:
        return "text"
    return "object" if wanted.constraint.schema is None else "schema"


def _images_of(message: Message) -> Iterator[int]:
    """Where among its parts a message has images."""
    if isinstance(message.get("content"), list):
        yield from (place for place, part in enumerate(message["content"]) if part["type"] == "image_url")


def refuse_lacking(needs: Iterable[tuple[str, Need]], model: Model, catalogue: Catalogue) -> None:
    """Raise Unsupported for the first parameter that needs what this model's backend cannot do."""
    for param, need in needs:
        if not need.met_by(model):
            raise Unsupported(
                f"Unsupported parameter: '{param}'. The backend of {model.name} ({model.chat_backend.kind}) cannot "
                f"{need.what}. {_others(need, catalogue)}",
                param=param,
            )


def _others(need: Need, catalogue: Catalogue) -> str:
    able = [model.name for model in catalogue.of_task("chat") if need.met_by(model)]
    return f"Models here that can: {', '.join(able)}." if able else "No model that is served here can."
