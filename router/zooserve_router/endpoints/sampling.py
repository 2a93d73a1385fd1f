"""The fields that /v1/chat/completions and /v1/completions share: how to sample, and what this backend lacks."""

import random
from collections.abc import Mapping
from typing import Any

from zooserve.errors import BadInput, Unsupported
from zooserve_router.chat.generation import Sampling
from zooserve_router.payload import Fields, checked_text, kind_of

__all__ = ["MAX_CHOICES", "NEUTRAL", "choices_asked", "refuse_unsupported", "sampling_asked", "usage_asked"]

MAX_CHOICES = 16
"""Answers that one request may ask for, over all its prompts: each is a slot of the leaf."""
_MAX_STOPS = 4
_LEAST_TEMPERATURE = 1e-4
_MAX_STOP_CHARACTERS = 256

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Parameters that this backend lacks, with the values that ask for nothing; null always does."""

_ACCEPTED = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
)
"""Bookkeeping of OpenAI's own that changes no answer."""


def sampling_asked(fields: Fields) -> Sampling:
    """How to sample, without a grant yet. Raises BadInput for a value out of its range."""
    seed = fields.integer("seed", low=-(2**63), high=2**63 - 1)
    return Sampling(
        temperature=_temperature_asked(fields),
        top_p=fields.number("top_p", low=0, high=1, default=1.0),
        frequency_penalty=fields.number("frequency_penalty", low=-2, high=2, default=0.0),
        presence_penalty=fields.number("presence_penalty", low=-2, high=2, default=0.0),
        stop=_stops_asked(fields.raw("stop")),
        # The contract's engine takes one fixed seed when none is sent, and would say the same thing every time.
        seed=random.getrandbits(31) if seed is None else seed % 2**63,
    )


def _temperature_asked(fields: Fields) -> float:
    """Below a ten-thousandth it is greedy: logits divided by less overflow float32, and the answer is noise."""
    temperature = fields.number("temperature", low=0, high=2, default=1.0)
    return temperature if temperature >= _LEAST_TEMPERATURE else 0.0


def _stops_asked(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise BadInput(
            f"`stop` is {kind_of(value)}; it must be a string or an array of strings.",
            param="stop",
            code="invalid_type",
        )
    if len(texts) > _MAX_STOPS:
        raise BadInput(
            f"`stop` has {len(texts)} strings; at most {_MAX_STOPS} are allowed.",
            param="stop",
            code="array_above_max_length",
        )
    stops = tuple(checked_text(text, "stop") for text in texts)
    if any(len(stop) > _MAX_STOP_CHARACTERS for stop in stops):
        raise BadInput(f"A `stop` string may have at most {_MAX_STOP_CHARACTERS} characters.", param="stop")
    return stops


def choices_asked(fields: Fields, prompts: int = 1) -> int:
    """How many answers per prompt."""
    n = fields.integer("n", low=1, high=128)
    if n is not None and n * prompts > MAX_CHOICES:
        raise BadInput(
            f"{prompts} prompt(s) with `n` {n} ask for {n * prompts} answers; at most {MAX_CHOICES} are made at once.",
            param="n",
        )
    return n or 1


def usage_asked(fields: Fields, *, stream: bool) -> bool:
    """Whether the stream shall end with a usage chunk."""
    value = fields.raw("stream_options")
    if value is None:
        return False
    if not stream:
        raise BadInput("`stream_options` is only allowed when `stream` is true.", param="stream_options")
    if not isinstance(value, dict):
        raise BadInput(
            f"`stream_options` is {kind_of(value)}; it must be an object.", param="stream_options", code="invalid_type"
        )
    options = Fields(value)
    wanted = options.boolean("include_usage", default=False)
    if options.boolean("include_obfuscation", default=False):
        raise Unsupported("`stream_options.include_obfuscation` is not available here.", param="stream_options")
    options.refuse_unknown()
    return wanted


def refuse_unsupported(fields: Fields) -> None:
    """Raise Unsupported naming a parameter that would change the answer and cannot; pass what asks for nothing."""
    for name in _ACCEPTED:
        fields.raw(name)
    for name, neutral in NEUTRAL.items():
        value = fields.raw(name)
        if value is not None and not any(type(value) is type(other) and value == other for other in neutral):
            raise Unsupported(f"Unsupported parameter: '{name}' is not available with this model.", param=name)
