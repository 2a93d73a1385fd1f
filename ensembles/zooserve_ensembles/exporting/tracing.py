"""A checkpoint as one ONNX graph with dynamic batch and length."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zooserve.errors import ExportFailed
from zooserve_ensembles.exporting.checkpoint import Checkpoint
from zooserve_ensembles.exporting.original import load_original

__all__ = ["OPSET", "Traced", "trace"]

OPSET = 17
LARGEST = 2**31 - 2**26
"""A protobuf ends at 2 GiB, and larger graphs would need a second file beside `model.onnx`."""


@dataclass(frozen=True)
class Traced:
    """A graph's inputs and outputs, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def trace(checkpoint: Checkpoint, target: Path) -> Traced:
    """Write the checkpoint's graph to `target`."""
    module, names = _bi_encoder(checkpoint) if checkpoint.kind == "bi-encoder" else _cross_encoder(checkpoint)
    size = sum(parameter.numel() * 4 for parameter in module.parameters())
    if size > LARGEST:
        raise ExportFailed(f"{checkpoint.folder} has {size:,} bytes of weights; a single ONNX file holds {LARGEST:,}.")
    _export(module.eval(), names, target)
    return names


def _bi_encoder(checkpoint: Checkpoint) -> tuple[Any, Traced]:
    from transformers import AutoModel

    from zooserve_ensembles.exporting.heads import SentenceEncoder

    transformer = _loaded(AutoModel, checkpoint.transformer)
    module = SentenceEncoder(transformer, pooling=checkpoint.pooling or "mean", normalize=checkpoint.normalize)
    return module, Traced(("input_ids", "attention_mask"), ("sentence_embedding", "token_embeddings"))


def _cross_encoder(checkpoint: Checkpoint) -> tuple[Any, Traced]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from zooserve_ensembles.exporting.heads import PairScorer

    classifier = _loaded(AutoModelForSequenceClassification, checkpoint.transformer)
    scores = classifier.config.num_labels == 1
    typed = "token_type_ids" in AutoTokenizer.from_pretrained(checkpoint.transformer).model_input_names
    inputs = ("input_ids", "attention_mask", *(["token_type_ids"] if typed else []))
    activation = load_original(checkpoint).activation_fn if scores else torch.nn.Softmax(dim=1)
    return PairScorer(classifier, activation), Traced(inputs, ("score",) if scores else ("probabilities",))


def _loaded(kind: Any, folder: Path) -> Any:
    import torch

    # Eager attention: the fused kinds do not trace to a graph that ONNX Runtime can fuse again.
    return kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)


def _export(module: Any, names: Traced, target: Path) -> None:
    import torch

    example = tuple(_example(name) for name in names.inputs)
    tokens = {0: "batch", 1: "length"}
    axes = dict.fromkeys((*names.inputs, "token_embeddings"), tokens)
    axes |= {name: {0: "batch"} for name in names.outputs if name != "token_embeddings"}
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            module,
            example,
            str(target),
            dynamo=False,  # its graph is the one in which ONNX Runtime recognises attention; and 2 s against 10 s
            opset_version=OPSET,
            input_names=list(names.inputs),
            output_names=list(names.outputs),
            dynamic_axes={name: axis for name, axis in axes.items() if name in {*names.inputs, *names.outputs}},
        )


def _example(name: str, shape: Sequence[int] = (2, 7)) -> Any:
    import torch

    if name == "input_ids":
        return torch.arange(5, 5 + shape[0] * shape[1]).reshape(*shape)
    return torch.ones(*shape, dtype=torch.int64) if name == "attention_mask" else torch.zeros(*shape, dtype=torch.int64)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the tracer's warnings: what they fear, a graph that holds for one shape only, is what parity tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
