"""/v1/embeddings, as OpenAI has it to the letter.

`dimensions` other than the model's own is refused, not cut: MiniLM was not trained so that a prefix of its vector
means anything, and a silently worse vector would only show in the search results.

`input_type` is NVIDIA NIM's word: what the texts are, for a model that was trained with a prompt before each. Left out
it means "passage", since most texts that are embedded are. Models without prompts take it and have no use for it, so
that a client may ask any of them alike.
"""

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import BadInput, Unsupported
from zooserve_router.dispatch import find_model
from zooserve_router.embedding import Embeddings, TextInputs, TokenInputs
from zooserve_router.inputs import mixed_inputs, text_inputs
from zooserve_router.long_text import Averaged, required
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of
from zooserve_router.vectors import ENCODINGS, encoded_vectors

__all__ = ["EmbeddingsRequest", "routes"]


@dataclass(frozen=True)
class EmbeddingsRequest:
    """One parsed and checked request."""

    model: Model
    inputs: TextInputs | TokenInputs
    encoding: str
    long_text: bool = False
    """Whether texts longer than the model reads get the mean vector of their windows."""

    @classmethod
    def parse(cls, fields: Fields, catalogue: Catalogue) -> "EmbeddingsRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = find_model(catalogue, fields.required_text("model"), "embed")
        value = fields.required("input")
        encoding = fields.choice("encoding_format", ENCODINGS, default="float")
        _refuse_other_dimensions(fields.integer("dimensions", low=1), model)
        input_type = fields.choice("input_type", ("query", "passage"), default="")
        long_text = fields.choice("long_text", ("mean",), default="") == "mean"
        fields.text("user")
        fields.refuse_unknown()
        inputs = _any_length(value, model) if long_text else mixed_inputs(value, model)
        return cls(model, _prompted(inputs, model, input_type), encoding, long_text)


def _refuse_other_dimensions(wanted: int | None, model: Model) -> None:
    if wanted is not None and wanted != model.dimensions:
        raise Unsupported(
            f"`dimensions` is {wanted}; vectors of {model.name} have {model.dimensions} and cannot be shortened "
            "faithfully. Leave `dimensions` out.",
            param="dimensions",
        )


def _prompted(inputs: TextInputs | TokenInputs, model: Model, input_type: str) -> TextInputs | TokenInputs:
    """The texts with the model's prompt before each; token ids are as the caller made them."""
    if model.prompts is None:
        return inputs
    if isinstance(inputs, TextInputs):
        return inputs.after(model.prompts.query if input_type == "query" else model.prompts.passage)
    if input_type:
        raise BadInput("`input_type` is for texts; token ids bring their prompt along.", param="input_type")
    return inputs


def _any_length(value: Any, model: Model) -> TextInputs:
    """Texts alone: which ids would begin and end a window of token ids, only the text could tell."""
    required(model)
    if isinstance(value, list) and value and not isinstance(value[0], str):
        raise BadInput(
            "`long_text` is for texts; send `input` as strings, or leave `long_text` out.", param="long_text"
        )
    return text_inputs(value, model)


async def create_embeddings(request: Request) -> Response:
    """POST /v1/embeddings."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        wanted = EmbeddingsRequest.parse(await json_fields(request), services.catalogue)
        context.record.runs(wanted.model, context.record.slo_class)
    if wanted.long_text and isinstance(wanted.inputs, TextInputs):
        made = await services.embedder.embed_any_length(wanted.model, wanted.inputs, context)
    else:
        made = await services.embedder.embed(wanted.model, wanted.inputs, context)
    return Response(_rendered(wanted, made), media_type="application/json", headers=_told(made.averaged))


def _told(averaged: Averaged | None) -> dict[str, str]:
    """What became of long texts, in a header: OpenAI's body has no place for it."""
    if averaged is None:
        return {}
    return {"x-zooserve-long-text": f"mean; texts={averaged.texts}; chunks={averaged.chunks}"}


def _rendered(wanted: EmbeddingsRequest, made: Embeddings) -> bytes:
    answer = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(encoded_vectors(made.vectors, wanted.encoding))
        ],
        "model": wanted.model.name,
        "usage": {"prompt_tokens": made.tokens, "total_tokens": made.tokens},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


routes = (Route("/v1/embeddings", create_embeddings, methods=["POST"]),)
