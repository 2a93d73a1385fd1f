"""The configurations of a Triton repository, as Triton's own protobuf."""

from pathlib import Path
from typing import Any

__all__ = ["ModelConfig", "read_configs"]

ModelConfig = Any
"""`model_config_pb2.ModelConfig`; the generated module brings no types."""


def read_configs(repository: Path, variant: str = "") -> dict[str, ModelConfig]:
    """By model, as `--model-config-name=<variant>` chooses them: config.pbtxt where a model has no such variant.

    One that cannot be read is left out: Triton says what is wrong with it.
    """
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    configs: dict[str, ModelConfig] = {}
    for default in sorted(repository.glob("*/config.pbtxt")):
        chosen = default.parent / "configs" / f"{variant}.pbtxt"
        try:
            text = (chosen if variant and chosen.is_file() else default).read_text(encoding="utf-8")
            configs[default.parent.name] = text_format.Parse(text, model_config_pb2.ModelConfig())
        except (OSError, ValueError, text_format.ParseError):
            continue
    return configs
