"""A diagram as Mermaid text, which GitHub and most documentation sites draw."""

from zooserve_ensembles.drawing.diagram import Diagram, Kind, Link, Node

__all__ = ["fenced", "mermaid"]

SHAPES = {
    Kind.INPUT: ("([", "])"),
    Kind.STEP: ("[", "]"),
    Kind.OUTPUT: ("([", "])"),
    Kind.FAULT: ("[/", "/]"),
}
STYLES = (
    "classDef input stroke-dasharray:4 3",
    "classDef output stroke-width:2px",
    "classDef fault stroke:#c0392b,stroke-width:2px,stroke-dasharray:4 3",
)


def mermaid(diagram: Diagram) -> str:
    """The text of a flow chart, from top to bottom."""
    lines = [*map(_node, range(len(diagram.nodes)), diagram.nodes), *map(_link, diagram.links)]
    kinds = {node.kind for node in diagram.nodes}
    styles = [style for style in STYLES if style.split()[1] in kinds]
    return "\n  ".join(["flowchart TD", *lines, *styles]) + "\n"


def fenced(drawing: str) -> str:
    """The text as a block of Markdown."""
    return f"```mermaid\n{drawing}```\n"


def _node(number: int, node: Node) -> str:
    before, after = SHAPES[node.kind]
    text = f"<b>{_escaped(node.title)}</b><br/>{_escaped(node.detail)}"
    style = "" if node.kind is Kind.STEP else f":::{node.kind}"
    return f'n{number}{before}"{text}"{after}{style}'


def _link(link: Link) -> str:
    label = "<br/>".join(map(_escaped, link.labels))
    arrow = f'-- "{label}" -->' if label else "-->"
    return f"n{link.source} {arrow} n{link.target}"


def _escaped(text: str) -> str:
    """Without what Mermaid or the page would read as markup."""
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
