"""Checks of what a caller gives, before anything is sent: each refusal names the argument and the item."""

import json
import operator
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any
from urllib.parse import urlsplit

from zooserve.errors import BadInput, BodyTooLarge

__all__ = [
    "checked_base_url",
    "checked_header",
    "checked_list",
    "checked_name",
    "checked_positive",
    "checked_text",
    "encoded_body",
]

_USER = re.compile(r"//[^/]*@")
_ADDRESS = "for example http://127.0.0.1:8000"


def checked_text(value: Any, param: str) -> str:
    """A text that a model can read. Raises BadInput for another type, an empty one, NULs and lone surrogates."""
    if not isinstance(value, str):
        raise BadInput(f"`{param}` is {_kind(value)}; it must be a string.", param=param, code="invalid_type")
    if not value:
        raise BadInput(f"`{param}` is an empty string; leave it out or send text.", param=param)
    if "\0" in value:
        raise BadInput(f"`{param}` contains a NUL character, at {value.index(chr(0))}; remove it.", param=param)
    if not value.isascii():
        _refuse_surrogates(value, param)
    return value


def checked_list(value: Any, param: str) -> list[Any]:
    """The items of any iterable that has an order. Raises BadInput for texts, mappings, sets, and if there is none."""
    if isinstance(value, str | bytes | bytearray | Mapping | Set) or not isinstance(value, Iterable):
        raise BadInput(f"`{param}` is {_kind(value)}; it must be a list.", param=param, code="invalid_type")
    try:
        items = list(value)
    except TypeError as exc:  # numpy's arrays without a dimension say that they can be iterated
        raise BadInput(f"`{param}` is no list: {exc}.", param=param, code="invalid_type") from exc
    if not items:
        raise BadInput(f"`{param}` is an empty list; send at least one item.", param=param)
    return items


def checked_name(value: Any, param: str) -> str:
    """A name that can stand in a path. Raises BadInput for what would lead elsewhere."""
    if {".", ".."} & set(checked_text(value, param).split("/")):
        raise BadInput(f"`{param}` is {value[:64]!r}; no model is called so.", param=param)
    return str(value)


def checked_base_url(value: Any) -> tuple[str, str | None]:
    """The address without a slash or `/v1` at its end, and `name:password` if it has them, which it has not then.

    Raises BadInput, without the password, unless it has a scheme and a host.
    """
    if not isinstance(value, str):
        raise BadInput(f"`base_url` is {_kind(value)}; it must be an address, {_ADDRESS}.", param="base_url")
    shown = _USER.sub("//…@", value)
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError as exc:
        raise BadInput(f"`base_url` is {shown!r}: {exc}. Give an address, {_ADDRESS}.", param="base_url") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadInput(
            f"`base_url` is {shown!r}; it must begin with http:// or https:// and name a host, {_ADDRESS}.",
            param="base_url",
        )
    if parts.query or parts.fragment:
        raise BadInput(f"`base_url` is {shown!r}; it ends before any ? or #.", param="base_url")
    user, has_user, host = parts.netloc.rpartition("@")
    url = parts._replace(netloc=host).geturl()
    return url.rstrip("/").removesuffix("/v1").rstrip("/"), user if has_user else None


def checked_header(value: Any, param: str) -> str:
    """A text that a header can hold. Raises BadInput for anything but printable ASCII."""
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        told = _kind(value) if not isinstance(value, str) else "not printable ASCII"
        raise BadInput(f"`{param}` is {told}; it must be a text of printable ASCII.", param=param)
    return value


def checked_positive(value: Any, param: str) -> int:
    """An integer of at least 1. Raises BadInput for anything else."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # numpy's integers are none of `int`
    except TypeError:
        number = 0
    if number < 1:
        raise BadInput(f"`{param}` is {value!r}; it must be an integer of at least 1.", param=param)
    return number


def encoded_body(fields: Mapping[str, Any], max_bytes: int) -> bytes:
    """The body as UTF-8 JSON. Raises BadInput for what JSON cannot hold, BodyTooLarge beyond the bytes."""
    try:
        body = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as exc:
        raise BadInput(f"The request holds half a surrogate pair, {exc.object[exc.start]!r}: send whole ones.") from exc
    except (TypeError, ValueError, RecursionError) as exc:
        raise BadInput(f"The request cannot be written as JSON: {exc}.") from exc
    if len(body) > max_bytes:
        raise BodyTooLarge(
            f"The request has {len(body):,} bytes; the platform takes at most {max_bytes:,} in one. Cut long documents "
            "into chunks: a model reads only their first few hundred tokens."
        )
    return body


def _refuse_surrogates(value: str, param: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise BadInput(
            f"`{param}` contains half a surrogate pair, {value[exc.start]!r} at {exc.start}: it is no character and "
            "JSON cannot hold it. Text read with errors='surrogateescape' has such; read it with errors='replace'.",
            param=param,
        ) from exc


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
