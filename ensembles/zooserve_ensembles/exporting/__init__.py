"""Checkpoints of sentence-transformers as ONNX versions: read, trace, compare with the original, record.

An export passes: checkpoint -> tracing -> parity -> version. Only `tracing` and `parity` need torch.
"""

__all__: list[str] = []
