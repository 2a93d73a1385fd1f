"""The drawings inside a page of the documentation, between two markers."""

from collections.abc import Iterable, Mapping

from zooserve_ensembles.configuration import ModelConfig
from zooserve_ensembles.drawing.diagram import diagram_of
from zooserve_ensembles.drawing.mermaid import fenced, mermaid
from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Pipeline

__all__ = ["BEGIN", "END", "with_drawings"]

BEGIN = "<!-- Drawings: written by `zooserve ensembles render`, up to the next marker. -->"
END = "<!-- End of the drawings. -->"


def with_drawings(page: str, configs: Mapping[str, ModelConfig], families: Iterable[Family] = FAMILIES) -> str:
    """The page with every pipeline drawn between its markers, whatever stood there; as it was if it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        return page
    pipelines = (pipeline for family in families for pipeline in family.pipelines)
    drawings = "\n".join(_section(pipeline, configs) for pipeline in pipelines)
    return f"{before}{begin}\n\n{drawings}\n{end}{after}"


def _section(pipeline: Pipeline, configs: Mapping[str, ModelConfig]) -> str:
    lengths = f" Buckets: {', '.join(map(str, pipeline.buckets))} tokens." if pipeline.buckets else ""
    drawing = fenced(mermaid(diagram_of(configs[pipeline.name], configs)))
    return f"### {pipeline.name}\n{pipeline.summary} Class: {pipeline.slo_class}.{lengths}\n\n{drawing}"
