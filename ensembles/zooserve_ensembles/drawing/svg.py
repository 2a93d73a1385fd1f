"""A diagram as an SVG picture that needs nothing else: no font, no script, readable on light and dark pages."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise

from zooserve_ensembles.drawing.diagram import Diagram, Kind, Link, Node
from zooserve_ensembles.drawing.layout import Arc, Layout, Place, Size, arranged, spread

__all__ = ["svg"]

TITLE, TEXT, LINE = 14.0, 12.0, 17.0
GLYPH = 0.61
"""Width of a character by the size of the font: monospaced, so that a box can be measured without a font."""
HEADING = 52.0
PAD_X, PAD_Y = 16.0, 10.0
PORT_GAP = 20.0

STYLE = """
    text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 12px }
    .page { fill: #ffffff } .name { font-size: 14px; font-weight: 600; fill: #1b2430 } .heading { font-size: 17px }
    .detail, .label { fill: #55606e } .label-back { fill: #ffffff }
    .link { fill: none; stroke: #8792a2; stroke-width: 1.5 } .head { fill: #8792a2 }
    .step { fill: #f6f8fa; stroke: #c4ccd6; stroke-width: 1.2 }
    .input { fill: #eaf3ff; stroke: #4a86cf } .output { fill: #e9f7ee; stroke: #3d9a5f }
    .fault { fill: #fdeeee; stroke: #c8453b; stroke-dasharray: 5 3 }
    .python { fill: #d9a514 } .onnxruntime { fill: #6f63d9 } .ensemble { fill: #2f9e95 } .other { fill: #8792a2 }
    @media (prefers-color-scheme: dark) {
      .page, .label-back { fill: #12161c } .name { fill: #e8edf3 } .detail, .label { fill: #a3afbd }
      .link { stroke: #75818f } .head { fill: #75818f }
      .step { fill: #1c222b; stroke: #3b4653 }
      .input { fill: #16283f; stroke: #5b97df } .output { fill: #163023; stroke: #4fb274 }
      .fault { fill: #3a1b1b; stroke: #e0665c }
    }
"""
STRIPES = ("python", "onnxruntime", "ensemble")


def svg(diagram: Diagram) -> str:
    """The picture, from top to bottom: inputs, steps, outputs."""
    layout = arranged(
        [_size(node) for node in diagram.nodes],
        [Arc(link.source, link.target, _label_size(link)) for link in diagram.links],
        first=_of_kind(diagram, Kind.INPUT),
        last=_of_kind(diagram, Kind.OUTPUT),
    )
    heading = max(_width(diagram.name, 17), _width(diagram.detail, TEXT)) + 2 * PAD_X
    width, height = max(layout.size.width, heading), layout.size.height + HEADING
    shift = (width - layout.size.width) / 2
    body = [*_links(diagram, layout), *_labels(diagram, layout), *_boxes(diagram, layout)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(diagram.name)}, {diagram.detail}">\n'
        f"  <style>{STYLE}  </style>\n"
        '  <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'  <rect class="page" width="{width:.0f}" height="{height:.0f}" rx="10"/>\n'
        f'  <text class="name heading" x="{PAD_X}" y="28">{escape(diagram.name)}</text>\n'
        f'  <text class="detail" x="{PAD_X}" y="46">{escape(diagram.detail)}</text>\n'
        f'  <g transform="translate({shift:.1f} {HEADING})">\n    ' + "\n    ".join(body) + "\n  </g>\n</svg>\n"
    )


def _boxes(diagram: Diagram, layout: Layout) -> Iterator[str]:
    for node, place in zip(diagram.nodes, layout.boxes, strict=True):
        radius = 8 if node.kind is Kind.STEP else place.size.height / 2
        yield f'<rect class="{node.kind}" {_rectangle(place)} rx="{radius:.1f}"/>'
        if node.kind is Kind.STEP:
            colour = node.backend if node.backend in STRIPES else "other"
            stripe = Place(place.left + 7.5, place.y, Size(3, place.size.height - 18))
            yield f'<rect class="{colour}" {_rectangle(stripe)} rx="1.5"/>'
        yield _text("name", node.title, place.x, place.y - 3)
        yield _text("detail", node.detail, place.x, place.y + 14)


def _labels(diagram: Diagram, layout: Layout) -> Iterator[str]:
    for link, way in zip(diagram.links, layout.ways, strict=True):
        if not link.labels:
            continue
        label = way[0]
        yield f'<rect class="label-back" {_rectangle(label)}/>'
        first = label.y - (len(link.labels) - 1) * LINE / 2 + 4
        for number, text in enumerate(link.labels):
            yield _text("label", text, label.x, first + number * LINE)


def _links(diagram: Diagram, layout: Layout) -> Iterator[str]:
    leaving = _ports(diagram.links, layout, "source")
    arriving = _ports(diagram.links, layout, "target")
    for number, link in enumerate(diagram.links):
        yield f'<path class="link" marker-end="url(#head)" d="{_path(link, layout, number, leaving, arriving)}"/>'


def _path(link: Link, layout: Layout, number: int, leaving: Mapping[int, float], arriving: Mapping[int, float]) -> str:
    source, target = layout.boxes[link.source], layout.boxes[link.target]
    way = layout.ways[number]
    if source.y < target.y:
        points = [(leaving[number], source.bottom)]
        points += [(place.x, y) for place in way for y in (place.top, place.bottom)]
        points.append((arriving[number], target.top))
    else:
        # Against the stream: it closes a cycle.
        points = [(leaving[number], source.top)]
        points += [(place.x, y) for place in reversed(way) for y in (place.bottom, place.top)]
        points.append((arriving[number], target.bottom))
    return f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(_curve(*pair) for pair in pairwise(points))


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    middle = (start[1] + end[1]) / 2
    return f" C{start[0]:.1f} {middle:.1f} {end[0]:.1f} {middle:.1f} {end[0]:.1f} {end[1]:.1f}"


def _ports(links: Sequence[Link], layout: Layout, side: str) -> dict[int, float]:
    """Where each link meets its box: side by side, in the order in which they go on."""
    ports: dict[int, float] = {}
    for box, place in enumerate(layout.boxes):
        here = [number for number, link in enumerate(links) if getattr(link, side) == box]
        here.sort(key=lambda number: _next(layout, links[number], number, side).x)
        reach = place.size.width / 2 - PORT_GAP
        wanted = [_next(layout, links[number], number, side).x - place.x for number in here]
        places = spread([min(max(x, -reach), reach) for x in wanted], [0.0] * len(here), PORT_GAP)
        ports |= {number: place.x + x for number, x in zip(here, places, strict=True)}
    return ports


def _next(layout: Layout, link: Link, number: int, side: str) -> Place:
    """What a link passes first, seen from that end."""
    way = layout.ways[number]
    upper = layout.boxes[link.source].y < layout.boxes[link.target].y
    if not way:
        return layout.boxes[link.target if side == "source" else link.source]
    return way[0] if (side == "source") == upper else way[-1]


def _of_kind(diagram: Diagram, kind: Kind) -> set[int]:
    return {number for number, node in enumerate(diagram.nodes) if node.kind is kind}


def _size(node: Node) -> Size:
    return Size(max(_width(node.title, TITLE), _width(node.detail, TEXT)) + 2 * PAD_X, 2 * PAD_Y + 2 * LINE - 4)


def _label_size(link: Link) -> Size:
    widest = max((_width(label, TEXT) for label in link.labels), default=0)
    return Size(widest + 8, len(link.labels) * LINE) if link.labels else Size(0, 0)


def _width(text: str, size: float) -> float:
    return len(text) * size * GLYPH


def _rectangle(place: Place) -> str:
    x, y = f'x="{place.left:.1f}"', f'y="{place.top:.1f}"'
    return f'{x} {y} width="{place.size.width:.1f}" height="{place.size.height:.1f}"'


def _text(style: str, text: str, x: float, y: float) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'
