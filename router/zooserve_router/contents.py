"""Images and files as OpenAI's content parts have them: inline, as data URLs. Nothing is fetched from elsewhere."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zooserve.catalogue import Modality, Model
from zooserve.errors import BadInput, TooManyItems, Unsupported
from zooserve_router.payload import kind_of, shown, unknown_field

__all__ = ["ContentInputs", "content_inputs"]

_EXAMPLES = {
    "image": '{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}',
    "file": '{"type": "file", "file": {"file_data": "data:;base64,..."}}',
}
# Part type, the field in it, the field that holds the data URL, and the fields that may stand beside.
_FORMS = {"image": ("image_url", "url", frozenset[str]()), "file": ("file", "file_data", frozenset({"filename"}))}


@dataclass(frozen=True)
class ContentInputs:
    """What was sent, decoded from base64 and not looked at; `params` are the names of the items for messages."""

    contents: Sequence[bytes]
    params: Sequence[str]


def content_inputs(value: Any, model: Model) -> ContentInputs:
    """One content part or a list of them. Raises BadInput naming the item at fault."""
    items = value if isinstance(value, list) else [value]
    if not items:
        raise BadInput("`input` is an empty array; send at least one item.", param="input")
    if len(items) > model.limits.max_items:
        raise TooManyItems(
            f"`input` has {len(items)} items; {model.name} takes at most {model.limits.max_items} in one request.",
            param="input",
        )
    params = [f"input[{place}]" for place in range(len(items))] if isinstance(value, list) else ["input"]
    return ContentInputs([_content(item, param, model) for item, param in zip(items, params, strict=True)], params)


def _content(part: Any, param: str, model: Model) -> bytes:
    form, key, beside = _FORMS[model.modality]
    if not isinstance(part, dict):
        raise _wrong(param, kind_of(part), model)
    if part.get("type") != form:
        raise _wrong(param, f"a content part of type {shown(part.get('type'))}", model)
    _refuse_unknown(part, {"type", form}, param, model.modality)
    inner = part.get(form)
    if not isinstance(inner, dict):
        raise _wrong(f"{param}.{form}", kind_of(inner), model)
    _refuse_unknown(inner, {key, *beside}, f"{param}.{form}", model.modality)
    return _decoded(inner.get(key), f"{param}.{form}.{key}", model)


def _wrong(param: str, found: str, model: Model) -> BadInput:
    article = "an image" if model.modality == "image" else "a file"
    return BadInput(
        f"`{param}` is {found}; {model.name} takes {article}, sent as {_EXAMPLES[model.modality]}.",
        param=param,
        code="invalid_type",
    )


def _refuse_unknown(fields: dict[str, Any], known: set[str], param: str, modality: Modality) -> None:
    for name in fields.keys() - known:
        raise unknown_field(f"{param}.{name[:64]}", f"A part is sent as {_EXAMPLES[modality]}.")


def _decoded(url: Any, param: str, model: Model) -> bytes:
    if not isinstance(url, str):
        raise _wrong(param, kind_of(url), model)
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "data":
        raise Unsupported(
            f"`{param}` is {shown(url)}; nothing is fetched from elsewhere: send the content itself as a data URL, "
            "data:<media type>;base64,<content>.",
            param=param,
        )
    head, comma, payload = rest.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise BadInput(f"`{param}` is no base64 data URL: it begins {shown(url)}.", param=param)
    try:
        content = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise BadInput(f"`{param}` is not valid base64: {exc}.", param=param) from exc
    if not content:
        raise BadInput(f"`{param}` holds no bytes.", param=param)
    return content
