"""What a zoo model must answer before it counts as ready: one real inference per class and bucket.

Texts and ids are drawn anew each time: a response cache would answer known ones for a stub that is dead.
"""

import secrets
from collections.abc import Iterator, Mapping
from string import ascii_lowercase

import numpy as np

from zooserve.catalogue import Model, SloClass
from zooserve.errors import BackendUnavailable, ServingError
from zooserve.triton.samples import SAMPLES
from zooserve.triton.tensors import Tensor, bytes_tensor, text_tensor, token_tensor
from zooserve_router.backends.zoo import Inference
from zooserve_router.dispatch import Zoo, outputs_of
from zooserve_router.readiness import Probe
from zooserve_router.vocabulary import TokenCounter, known

__all__ = ["inferences_proving", "zoo_probe"]

# One inference of the longest bucket on two busy cores takes far less, also while another class is being warmed.
_TIMEOUT_S = 30.0
_SAFE_IDS = 99


def zoo_probe(model: Model, zoo: Zoo, counters: Mapping[str, TokenCounter]) -> Probe:
    """A probe that sends them all. It raises ServingError naming the bucket that failed."""

    async def probe() -> None:
        if model.tokenizer is not None:
            known(counters, model)
        if model.labels_file is not None and not model.labels:
            raise BackendUnavailable(f"{model.labels_file} is missing or broken; run `zooserve fetch` and restart.")
        for inference in inferences_proving(model):
            try:
                await zoo.infer(inference)
            except ServingError as fault:
                raise BackendUnavailable(f"{inference.request_id}: {fault.message}") from fault

    return probe


def inferences_proving(model: Model) -> Iterator[Inference]:
    """One inference per SLO class and bucket, and the same for the encoder that takes token ids."""
    for slo_class in model.triton:
        for bucket in model.buckets or (model.limits.max_tokens,):
            yield _ask(model.triton_model(slo_class), (_contents(model, bucket),), outputs_of(model), bucket)
    for slo_class in model.encoder or ():
        for bucket in model.buckets:
            yield _ask(_encoder(model, slo_class), _token_inputs(bucket), ("sentence_embedding",), bucket)


def _encoder(model: Model, slo_class: SloClass) -> str:
    return model.encoder_model(slo_class) or model.triton_model(slo_class)


def _ask(triton_model: str, inputs: tuple[Tensor, ...], outputs: tuple[str, ...], bucket: int) -> Inference:
    return Inference(triton_model, inputs, outputs, f"probe {triton_model} bucket {bucket}", _TIMEOUT_S, is_probe=True)


def _contents(model: Model, bucket: int) -> Tensor:
    if model.modality != "text":
        return bytes_tensor(model.modality, [SAMPLES[model.modality]])
    # A letter is a token, and two special ones fill it up.
    text = " ".join(secrets.choice(ascii_lowercase) for _ in range(bucket - 2))
    return text_tensor("text", [text, text] if model.task == "rerank" else [text])


def _token_inputs(bucket: int) -> tuple[Tensor, ...]:
    # Ids of BERT's unused entries: every vocabulary has as many.
    ids = np.array([[1 + secrets.randbelow(_SAFE_IDS) for _ in range(bucket)]], dtype=np.int64)
    return (token_tensor("input_ids", ids), token_tensor("attention_mask", np.ones_like(ids)))
