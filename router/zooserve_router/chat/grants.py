"""How long an answer may get."""

from zooserve.catalogue import Model
from zooserve.errors import InputTooLong

__all__ = ["granted_tokens"]


def granted_tokens(model: Model, prompt_tokens: int, asked: int | None, default: int | None, param: str) -> int:
    """What was asked, clamped by the catalogue; unasked, the default that still fits.

    Raises InputTooLong when prompt and answer do not fit together.
    """
    window = model.limits.max_tokens
    ceiling = model.limits.max_completion_tokens or window
    room = window - prompt_tokens
    wanted = min(asked if asked is not None else default or ceiling, ceiling)
    if room >= (wanted if asked is not None else 1):
        return min(wanted, room)
    raise InputTooLong(
        f"This model's maximum context length is {window} tokens. However, you requested {prompt_tokens + wanted} "
        f"tokens ({prompt_tokens} in the {param}, {wanted} in the completion). Shorten the {param} or ask for a "
        "shorter completion.",
        param=param,
    )
