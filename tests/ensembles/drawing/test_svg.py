"""The picture: well-formed, self-contained, true to the diagram."""

import re
from xml.etree import ElementTree

import pytest

from zooserve_ensembles.drawing import Diagram, mermaid, svg
from zooserve_ensembles.drawing.diagram import Kind, Link, Node

TOY = Diagram(
    name="toy <&>",
    detail="ensemble, up to 8 rows a batch",
    nodes=(
        Node(Kind.INPUT, "text", "STRING [1]"),
        Node(Kind.STEP, "splitter", "version 1, python", "python"),
        Node(Kind.STEP, "encoder", "version 1, tensorrt", "tensorrt"),
        Node(Kind.FAULT, "lost", "nobody reads it"),
        Node(Kind.OUTPUT, 'em"bed', "FP32 [4]"),
    ),
    links=(
        Link(0, 1),
        Link(1, 2, ("ids INT64 [-1]", "mask INT64 [-1]")),
        Link(1, 3),
        Link(2, 4),
        Link(2, 1, ("a", "b")),
    ),
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def picture() -> ElementTree.Element:
    return ElementTree.fromstring(svg(TOY))


def test_every_text_of_the_diagram_is_in_the_picture(picture: ElementTree.Element) -> None:
    shown = {text.text for text in picture.iter(f"{SVG}text")}
    told = {TOY.name, TOY.detail, *(label for link in TOY.links for label in link.labels)}
    assert told | {text for node in TOY.nodes for text in (node.title, node.detail)} == shown


def test_every_link_is_an_arrow(picture: ElementTree.Element) -> None:
    arrows = [path for path in picture.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == len(TOY.links)


def test_inputs_steps_and_outputs_look_different(picture: ElementTree.Element) -> None:
    boxes = [box.get("class") for box in picture.iter(f"{SVG}rect")]
    assert {"input", "step", "output", "fault"} <= set(boxes)


def test_the_picture_loads_nothing() -> None:
    assert not re.search(r"url\((?!#)|href|@import|<script", svg(TOY))


def test_everything_lies_within_the_picture(picture: ElementTree.Element) -> None:
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for box in picture.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width
        assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height


def test_light_and_dark_pages_are_both_styled() -> None:
    light, dark = svg(TOY).split("@media (prefers-color-scheme: dark)")
    for name in (".page", ".name", ".detail", ".link", ".step", ".input", ".output", ".fault"):
        assert name in light
        assert name in dark


def test_mermaid_names_nodes_by_number_and_escapes_their_texts() -> None:
    text = mermaid(TOY)
    assert text.startswith("flowchart TD\n")
    assert 'n1 -- "ids INT64 [-1]<br/>mask INT64 [-1]" --> n2' in text
    assert 'n4(["<b>em#quot;bed</b><br/>FP32 [4]"]):::output' in text
