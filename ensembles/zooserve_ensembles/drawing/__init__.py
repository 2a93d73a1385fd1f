"""Pictures of ensembles: configurations -> `diagram` -> `mermaid` text, or `layout` -> `svg`."""

from zooserve_ensembles.drawing.configs import configs_of, zoo_configs
from zooserve_ensembles.drawing.diagram import Diagram, diagram_of
from zooserve_ensembles.drawing.mermaid import fenced, mermaid
from zooserve_ensembles.drawing.page import with_drawings
from zooserve_ensembles.drawing.svg import svg

__all__ = ["Diagram", "configs_of", "diagram_of", "fenced", "mermaid", "svg", "with_drawings", "zoo_configs"]
