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
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve.errors import BadInput, Unsupported
from zooserve_router.context import RequestContext
from zooserve_router.embedding import Embedder, Embeddings, TextInputs, TokenInputs
from zooserve_router.inputs import mixed_inputs, text_inputs
from zooserve_router.lineup import Lineup
from zooserve_router.long_text import Averaged, required
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import Services, context_of, services_of
from zooserve_router.vectors import ENCODINGS, encoded_vectors

__all__ = ["EmbeddingsRequest", "routes"]


@dataclass(frozen=True)
class EmbeddingsRequest:
    """One parsed and checked request."""

    model: Model
    inputs: TextInputs | TokenInputs
    """As they came, without the model's prompt."""
    encoding: str
    input_type: str = ""
    long_text: bool = False
    """Whether texts longer than the model reads get the mean vector of their windows."""

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup) -> "EmbeddingsRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = lineup.find_model(fields.required_text("model"), "embed")
        value = fields.required("input")
        encoding = fields.choice("encoding_format", ENCODINGS, default="float")
        _refuse_other_dimensions(fields.integer("dimensions", low=1), model)
        input_type = fields.choice("input_type", ("query", "passage"), default="")
        long_text = fields.choice("long_text", ("mean",), default="") == "mean"
        fields.text("user")
        fields.refuse_unknown()
        inputs = _any_length(value, model) if long_text else mixed_inputs(value, model)
        if input_type and model.prompts is not None and isinstance(inputs, TokenInputs):
            raise BadInput("`input_type` is for texts; token ids bring their prompt along.", param="input_type")
        return cls(model, inputs, encoding, input_type, long_text)

    def prompted(self, model: Model) -> TextInputs | TokenInputs:
        """The texts with this model's prompt before each; token ids are as the caller made them."""
        if model.prompts is None or isinstance(self.inputs, TokenInputs):
            return self.inputs
        return self.inputs.after(model.prompts.query if self.input_type == "query" else model.prompts.passage)


def _refuse_other_dimensions(wanted: int | None, model: Model) -> None:
    if wanted is not None and wanted != model.dimensions:
        raise Unsupported(
            f"`dimensions` is {wanted}; vectors of {model.name} have {model.dimensions} and cannot be shortened "
            "faithfully. Leave `dimensions` out.",
            param="dimensions",
        )


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
        wanted = EmbeddingsRequest.parse(await json_fields(request), services.lineup(context))
        context.record.runs(wanted.model, context.record.slo_class)
    made = await _embedded(wanted, wanted.model, services.embedder, context)
    return Response(
        _rendered(wanted, made),
        media_type="application/json",
        headers=_told(made.averaged),
        background=_mirrored(wanted, services, context),
    )


async def _embedded(wanted: EmbeddingsRequest, model: Model, embedder: Embedder, context: RequestContext) -> Embeddings:
    inputs = wanted.prompted(model)
    if wanted.long_text and isinstance(inputs, TextInputs):
        return await embedder.embed_any_length(model, inputs, context)
    return await embedder.embed(model, inputs, context)


def _mirrored(wanted: EmbeddingsRequest, services: Services, context: RequestContext) -> BackgroundTask | None:
    """Texts of ordinary length alone: another model may have another tokenizer, and no way with longer ones."""
    if wanted.long_text or isinstance(wanted.inputs, TokenInputs):
        return None
    return services.shadows.after(
        wanted.model, context, lambda model, its: _embedded(wanted, model, services.embedder, its)
    )


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
        "model": wanted.model.public_name,
        "usage": {"prompt_tokens": made.tokens, "total_tokens": made.tokens},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


routes = (Route("/v1/embeddings", create_embeddings, methods=["POST"]),)
