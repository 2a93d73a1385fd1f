"""What a request to /v1/responses cannot ask for here: fields of other APIs, and all that needs something stored."""

from collections.abc import Mapping

from zooserve.errors import Unsupported
from zooserve_router.payload import Fields, unknown_field

__all__ = ["refuse_foreign", "refuse_stored"]

_MOVED = {
    "function_call": "tool_choice",
    "functions": "tools",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}
"""Parameters of /v1/chat/completions that have another name here."""

_OF_CHAT = ("frequency_penalty", "logit_bias", "logprobs", "n", "prediction", "presence_penalty", "seed", "stop")
"""Parameters of /v1/chat/completions that this API does not have."""

_ABSENT: Mapping[str, str] = {
    "access_programs": "it is OpenAI's own",
    "background": "nothing is stored here, so no answer can be fetched later",
    "background_options": "nothing is stored here, so no answer can be fetched later",
    "context_management": "the input is answered as it stands",
    "conversation": "nothing is stored here; send the earlier items in `input`",
    "image": "only text is read here",
    "moderation": "ask a classifier at /v1/classify",
    "previous_response_id": "nothing is stored here; send the earlier items in `input`",
    "prompt": "nothing is stored here; send its text in `instructions` and `input`",
    "prompt_cache_options": "the prompt cache cannot be steered here",
}
"""Parameters that would change the answer and cannot, and what to do instead."""


def refuse_foreign(fields: Fields) -> None:
    """What belongs to another API comes first: there is more to say of it than that it is unknown."""
    for name, place in _MOVED.items():
        if name in fields and fields.raw(name) is not None:
            raise Unsupported(f"Unsupported parameter: '{name}'. In /v1/responses it is '{place}'.", param=name)
    for name in _OF_CHAT:
        if name in fields and fields.raw(name) is not None:
            raise unknown_field(name, "It is a parameter of /v1/chat/completions, and not of /v1/responses.")
    for name, reason in _ABSENT.items():
        if name in fields and fields.raw(name) not in (None, False):
            raise Unsupported(f"Unsupported parameter: '{name}' is not available: {reason}.", param=name)


def refuse_stored(fields: Fields) -> None:
    """`store` is OpenAI's default, so it is taken, and answered as it is: false."""
    fields.boolean("store", default=False)
    if fields.choice("truncation", ("auto", "disabled"), default="disabled") == "auto":
        raise Unsupported(
            "`truncation` 'auto' is not available: nothing is left out of an input here. Send fewer items.",
            param="truncation",
        )
