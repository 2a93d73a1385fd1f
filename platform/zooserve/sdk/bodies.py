"""What requests say: bodies and headers, checked before anything is sent."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from zooserve.errors import BadInput
from zooserve.sdk.inputs import checked_header, checked_list, checked_text
from zooserve.sdk.propagation import trace_headers

__all__ = [
    "Content",
    "InputType",
    "SloClass",
    "call_headers",
    "classify_fields",
    "content_bytes",
    "documents_of",
    "embed_fields",
    "items_of",
    "rerank_fields",
    "sparse_fields",
    "texts_of",
]

InputType = Literal["query", "passage"]
SloClass = Literal["interactive", "bulk"]
Content = str | Mapping[str, Any]

_INTERACTIVE_TEXTS = 16
"""The server's own rule for a request without a class; of a call in parts only the whole is known here."""


def texts_of(value: Any, param: str = "input") -> list[str]:
    """One text or a list of them. Raises BadInput for anything else, naming the item."""
    if isinstance(value, str):
        return [checked_text(value, param)]
    return [checked_text(text, f"{param}[{place}]") for place, text in enumerate(checked_list(value, param))]


def items_of(value: Any, param: str = "input") -> list[Content]:
    """What is to be classified: texts, or OpenAI's content parts. Raises BadInput for anything else."""
    if isinstance(value, str | Mapping):
        value = [value]
    return [
        item if isinstance(item, Mapping) else checked_text(item, f"{param}[{place}]")
        for place, item in enumerate(checked_list(value, param))
    ]


def documents_of(value: Any) -> list[str]:
    """Texts, or objects of one field `text`. Raises BadInput for anything else."""
    return [
        checked_text(
            item["text"] if isinstance(item, Mapping) and set(item) == {"text"} else item, f"documents[{place}]"
        )
        for place, item in enumerate(checked_list(value, "documents"))
    ]


def content_bytes(item: Content) -> int:
    """What an item adds to a body, about: of a content part the length of its texts, base64 among them."""
    if isinstance(item, str):
        return len(item)
    return sum(content_bytes(value) for value in item.values() if isinstance(value, str | Mapping))


def embed_fields(model: str, texts: Sequence[str], input_type: InputType | None, *, long_text: bool) -> dict[str, Any]:
    """Of /v1/embeddings."""
    fields: dict[str, Any] = {"model": model, "input": texts, "encoding_format": "base64"}
    if input_type is not None:
        fields["input_type"] = input_type
    if long_text:
        fields["long_text"] = "mean"
    return fields


def sparse_fields(model: str, texts: Sequence[str], *, truncate: bool) -> dict[str, Any]:
    """Of /embed_sparse."""
    return {"model": model, "inputs": texts, "truncate": truncate}


def rerank_fields(model: str, query: str, documents: Sequence[str], max_tokens_per_doc: int | None) -> dict[str, Any]:
    """Of /v2/rerank."""
    fields: dict[str, Any] = {"model": model, "query": query, "documents": documents}
    if max_tokens_per_doc is not None:
        fields["max_tokens_per_doc"] = max_tokens_per_doc
    return fields


def classify_fields(model: str, items: Sequence[Content]) -> dict[str, Any]:
    """Of /v1/classify."""
    return {"model": model, "input": items}


def call_headers(slo_class: SloClass | None, space: str | None, items: int = 1) -> dict[str, str]:
    """Class, space and trace of a call with this many items. Raises BadInput for a class that is none."""
    if slo_class not in (None, "interactive", "bulk"):
        raise BadInput(f"`slo_class` is {slo_class!r}; it must be 'interactive', 'bulk' or None.", param="slo_class")
    headers = trace_headers()
    if slo_class is not None or items > _INTERACTIVE_TEXTS:
        headers["x-zooserve-class"] = slo_class or "bulk"
    if space is not None:
        headers["x-zooserve-embedding-space"] = checked_header(space, "space")
    return headers
