"""How to sample: the fields that /v1/chat/completions and /v1/completions share."""

import random
from collections.abc import Mapping
from typing import Any

from zooserve.errors import BadInput, TooManyItems, Unsupported
from zooserve_router.chat.generation import Sampling
from zooserve_router.chat.tokens import ChatTokenizer
from zooserve_router.payload import Fields, checked_text, kind_of

__all__ = [
    "MAX_CHOICES",
    "choices_asked",
    "logprobs_asked",
    "refuse_unknown_tokens",
    "sampling_asked",
    "stream_options_asked",
    "usage_asked",
]

MAX_CHOICES = 16
"""Answers that one request may ask for, over all its prompts: each is a slot of the leaf."""
_MAX_STOPS = 4
_LEAST_TEMPERATURE = 1e-4
_MAX_STOP_CHARACTERS = 256
_MAX_TOP_LOGPROBS = 20
_MAX_BIASED_TOKENS = 1024
_TOKEN_DIGITS = 9


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
        logit_bias=_bias_asked(fields.raw("logit_bias")),
    )


def _temperature_asked(fields: Fields) -> float:
    """Below a ten-thousandth it is greedy: logits divided by less overflow float32, and the answer is noise."""
    temperature = fields.number("temperature", low=0, high=2, default=1.0)
    return temperature if temperature >= _LEAST_TEMPERATURE else 0.0


def _bias_asked(value: Any) -> dict[int, float]:
    """Token ids, which JSON has as strings, to what is added to their logits."""
    if value is None:
        return {}
    biases = Fields.of(value, "logit_bias")
    if len(value) > _MAX_BIASED_TOKENS:
        raise TooManyItems(
            f"`logit_bias` names {len(value)} tokens; at most {_MAX_BIASED_TOKENS} are biased.", param="logit_bias"
        )
    for token in value:
        if not token.isdecimal() or not token.isascii() or len(token) > _TOKEN_DIGITS:
            raise BadInput(
                f"`logit_bias` has the key {token[:64]!r}; keys are token ids of this model, such as '1734'.",
                param="logit_bias",
            )
    return {int(token): biases.number(token, low=-100, high=100, default=0.0) for token in value}


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
    n = fields.integer("n", low=1, high=MAX_CHOICES)
    if n is not None and n * prompts > MAX_CHOICES:
        raise BadInput(
            f"{prompts} prompt(s) with `n` {n} ask for {n * prompts} answers; at most {MAX_CHOICES} are made at once.",
            param="n",
        )
    return n or 1


def logprobs_asked(fields: Fields) -> int | None:
    """How many alternatives to report beside each token, by /v1/chat/completions' two fields; None reports nothing."""
    wanted = fields.boolean("logprobs", default=False)
    top = fields.integer("top_logprobs", low=0, high=_MAX_TOP_LOGPROBS)
    if top and not wanted:
        raise BadInput(
            "`top_logprobs` is only allowed when `logprobs` is true.",
            param="top_logprobs",
            code="invalid_parameter_combination",
        )
    return (top or 0) if wanted else None


def refuse_unknown_tokens(bias: Mapping[int, float], tokenizer: ChatTokenizer | None) -> None:
    """Raise BadInput for a bias on a token that the model lacks; of an upstream, it says so itself."""
    if tokenizer is None:
        return
    size = tokenizer.tokenizer.get_vocab_size()
    unknown = [token for token in bias if token >= size]
    if unknown:
        raise BadInput(
            f"`logit_bias` names token {unknown[0]}, which is not in this model's vocabulary of {size} tokens.",
            param="logit_bias",
            code="token_not_in_vocabulary",
        )


def usage_asked(fields: Fields, *, stream: bool) -> bool:
    """Whether the stream shall end with a usage chunk."""
    options = stream_options_asked(fields, stream=stream)
    if options is None:
        return False
    wanted = options.boolean("include_usage", default=False)
    options.refuse_unknown()
    return wanted


def stream_options_asked(fields: Fields, *, stream: bool) -> Fields | None:
    """`stream_options`, if set. Raises BadInput where nothing is streamed, Unsupported for obfuscation."""
    value = fields.raw("stream_options")
    if value is None:
        return None
    if not stream:
        raise BadInput(
            "`stream_options` is only allowed when `stream` is true.",
            param="stream_options",
            code="invalid_parameter_combination",
        )
    options = Fields.of(value, "stream_options")
    if options.boolean("include_obfuscation", default=False):
        path = options.path("include_obfuscation")
        raise Unsupported(f"`{path}` is not available here; leave it out.", param=path)
    return options
