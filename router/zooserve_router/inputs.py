"""The `input` field as OpenAI has it: a string, a list of strings, a token array, or a list of token arrays."""

from collections.abc import Sequence
from typing import Any

from zooserve.catalogue import Model
from zooserve.errors import BadInput, InputTooLong, TooManyItems
from zooserve_router.embedding import TextInputs, TokenInputs
from zooserve_router.payload import checked_text, kind_of

__all__ = ["mixed_inputs", "text_inputs"]


def mixed_inputs(value: Any, model: Model) -> TextInputs | TokenInputs:
    """Texts or token rows. Raises BadInput naming the item at fault."""
    if isinstance(value, list) and value and _is_token(value[0]):
        return _token_inputs([value], ["input"], model)
    if isinstance(value, list) and value and isinstance(value[0], list):
        _refuse_too_many(value, model)
        return _token_inputs(value, _params(value), model)
    return text_inputs(value, model)


def text_inputs(value: Any, model: Model, field: str = "input") -> TextInputs:
    """One text or a list of texts, in the field of that name. Raises BadInput naming the item at fault."""
    if isinstance(value, str):
        return TextInputs([checked_text(value, field)], [field])
    if not isinstance(value, list):
        raise BadInput(
            f"`{field}` is {kind_of(value)}; it must be a string or an array.", param=field, code="invalid_type"
        )
    if not value:
        raise BadInput(f"`{field}` is an empty array; send at least one text.", param=field)
    _refuse_too_many(value, model, field)
    params = _params(value, field)
    return TextInputs([checked_text(text, param) for text, param in zip(value, params, strict=True)], params)


def _params(items: Sequence[Any], field: str = "input") -> list[str]:
    return [f"{field}[{place}]" for place in range(len(items))]


def _refuse_too_many(items: Sequence[Any], model: Model, field: str = "input") -> None:
    if len(items) > model.limits.max_items:
        raise TooManyItems(
            f"`{field}` has {len(items)} items; {model.name} takes at most {model.limits.max_items} in one request.",
            param=field,
        )


def _token_inputs(rows: Sequence[Any], params: Sequence[str], model: Model) -> TokenInputs:
    """The rows, refused by their lengths before anything looks at a token: a body may bring millions."""
    for row, param in zip(rows, params, strict=True):
        _check_length(row, param, model)
    total = sum(map(len, rows))
    if total > model.limits.max_request_tokens:
        raise InputTooLong(
            f"`input` has {total} tokens together; one request takes {model.limits.max_request_tokens}. "
            "Send them in several requests.",
            param="input",
        )
    for row, param in zip(rows, params, strict=True):
        _check_tokens(row, param)
    return TokenInputs(rows, params)


def _check_length(row: Any, param: str, model: Model) -> None:
    if not isinstance(row, list):
        raise BadInput(f"`{param}` is {kind_of(row)}, after token arrays; do not mix them.", param=param)
    if not row:
        raise BadInput(f"`{param}` is an empty token array.", param=param)
    if len(row) > model.limits.max_tokens:
        raise InputTooLong(
            f"`{param}` has {len(row)} tokens and {model.name} reads at most {model.limits.max_tokens}.", param=param
        )


def _check_tokens(row: Sequence[Any], param: str) -> None:
    stray = next((token for token in row if not _is_token(token)), 0)
    if not _is_token(stray):
        raise BadInput(f"`{param}` contains {kind_of(stray)}; token ids are integers.", param=param)


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
