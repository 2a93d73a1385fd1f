"""The original library's model of a checkpoint, in float32 whatever its weights are stored in."""

from typing import Any

from zooserve_ensembles.exporting.checkpoint import Checkpoint

__all__ = ["load_original"]


def load_original(checkpoint: Checkpoint) -> Any:
    """A SentenceTransformer or a CrossEncoder, on the CPU."""
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer

    load = SentenceTransformer if checkpoint.kind == "bi-encoder" else CrossEncoder
    return load(str(checkpoint.folder), device="cpu", model_kwargs={"dtype": torch.float32})
