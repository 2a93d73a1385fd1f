"""The configurations that a drawing is made of: those of a folder, or what the definitions say."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from zooserve_ensembles.configuration import ModelConfig, ensemble_config, member_config
from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.family import Family, generated_members

__all__ = ["configs_of", "zoo_configs"]

Configs = Mapping[str, ModelConfig]


def configs_of(root: Path) -> Configs:
    """Every configuration of a repository that can be read, by its folder."""
    found = {file.parent.name: _parsed(file) for file in sorted(root.glob("*/config.pbtxt"))}
    return {name: config for name, config in found.items() if config is not None}


def zoo_configs(root: Path, families: Iterable[Family] = FAMILIES) -> Configs:
    """The zoo: its hand-written configurations, and the generated ones as they are defined, rendered or not."""
    families = tuple(families)
    pipelines = (pipeline for family in families for pipeline in family.pipelines)
    return {
        **configs_of(root),
        **{pipeline.name: ensemble_config(pipeline).config for pipeline in pipelines},
        **{member.name: member_config(member).config for member in generated_members(families)},
    }


def _parsed(file: Path) -> ModelConfig | None:
    try:
        return text_format.Parse(file.read_text(encoding="utf-8"), pb.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError):
        return None
