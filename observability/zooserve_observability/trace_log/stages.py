"""Where a request's time went: its spans as a tree, and the stage that it waited for longest.

Triton tells queueing from computing by events: a model's span says QUEUE_START, and its computing is a span below it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from zooserve_observability.spans import Span

__all__ = ["Node", "Slowest", "slowest_of", "stage_of", "trees", "trees_between"]

_COMPUTE = "compute"
_QUEUE_START = "QUEUE_START"
_MODEL_KEYS = (("triton.model_name", "triton.model_version"), ("zooserve.model", "zooserve.model_version"))


@dataclass(eq=False)
class Node:
    """One span, in its place."""

    span: Span
    depth: int = 0
    model: str = ""
    """The model and version that it says it ran, as `embed@1`; that of what is above it where it says none."""
    above: "Node | None" = None
    below: list["Node"] = field(default_factory=list)

    def walk(self) -> Iterator["Node"]:
        """This one and all below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.below[::-1]

    @cached_property
    def queue(self) -> tuple[int, int] | None:
        """From when until when a Triton model's request waited in its queue; None of what is no such span."""
        began = next((event.at_ns for event in self.span.events if event.name == _QUEUE_START), None)
        computed = min((child.span.start_ns for child in self.below if child.span.name == _COMPUTE), default=None)
        return None if began is None or computed is None or computed <= began else (began, computed)


@dataclass(frozen=True)
class Slowest:
    """What a request waited for longest, of everything that it waited for in turn."""

    stage: str
    phase: str
    spent_ns: int
    whole_ns: int
    spans: int

    def __str__(self) -> str:
        """In words, without the figures."""
        return f"{self.stage}, {self.phase}" if self.phase else self.stage


def _own_model(span: Span) -> str:
    """A call to Triton names Triton's model, but only the public one's version: then that is told."""
    said = [(span.attributes.get(name, ""), span.attributes.get(version, "")) for name, version in _MODEL_KEYS]
    model, version = next((pair for pair in said if all(pair)), next((pair for pair in said if pair[0]), ("", "")))
    return f"{model}@{version}" if version else model


def trees(spans: Sequence[Span]) -> list[Node]:
    """The spans as trees, by time. A span that came twice counts once; a circle of parents is cut at its first span."""
    nodes = {span.span_id: Node(span) for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))}
    for node in nodes.values():
        node.above = nodes.get(node.span.parent_id)
        if node.above is not None:
            node.above.below.append(node)
    roots = [node for node in nodes.values() if node.above is None]
    placed = {node.span.span_id for root in roots for node in _placed(root)}
    for node in nodes.values():
        if node.span.span_id not in placed and node.above is not None:
            node.above.below.remove(node)
            node.above = None
            roots.append(node)
            placed.update(below.span.span_id for below in _placed(node))
    return roots


def _placed(root: Node) -> Iterator[Node]:
    for node in root.walk():
        node.depth = 0 if node.above is None else node.above.depth + 1
        node.model = _own_model(node.span) or ("" if node.above is None else node.above.model)
        yield node


def trees_between(roots: Iterable[Node], began_ns: int, ended_ns: int) -> list[Node]:
    """Those that began between two moments."""
    return [root for root in roots if began_ns <= root.span.start_ns <= ended_ns]


def slowest_of(root: Node) -> Slowest:
    """The stage and phase with the most time of their own on the way from the root's begin to its end."""
    spent: dict[tuple[str, str], int] = {}
    nodes: dict[tuple[str, str], set[str]] = {}
    for node, began, ended in _own_times(root):
        for phase, took in _phases(node, began, ended):
            key = (stage_of(node), phase)
            spent[key] = spent.get(key, 0) + took
            nodes.setdefault(key, set()).add(node.span.span_id)
    whole = root.span.duration_ns
    if not spent:
        return Slowest(root.span.name, "", whole, whole, 1)
    stage, phase = key = max(spent, key=spent.__getitem__)
    return Slowest(stage, phase, spent[key], whole, len(nodes[key]))


def _own_times(root: Node) -> Iterator[tuple[Node, int, int]]:
    """The critical path, from its end: who is waited for at each moment, by nobody below being there for it."""
    waiting = [(root, root.span.start_ns, root.span.end_ns)]
    while waiting:
        node, began, ended = waiting.pop()
        for child in sorted(node.below, key=lambda child: child.span.end_ns, reverse=True):
            child_ended = min(child.span.end_ns, ended)
            child_began = max(child.span.start_ns, began)
            if child_began >= child_ended:
                continue
            if child_ended < ended:
                yield node, child_ended, ended
            waiting.append((child, child_began, child_ended))
            ended = child_began
        if began < ended:
            yield node, began, ended


def _phases(node: Node, began: int, ended: int) -> Iterable[tuple[str, int]]:
    name = node.span.name
    if name == _COMPUTE:
        return [(_COMPUTE, ended - began)]
    if node.queue is not None:
        queued = max(0, min(ended, node.queue[1]) - max(began, node.queue[0]))
        return [("queue", queued), ("around its computing", ended - began - queued)]
    return [("itself" if node.below else "", ended - began)]


def stage_of(node: Node) -> str:
    """What a span is counted to: a model where it is one of Triton's spans, else its own name and whom it works for."""
    if node.span.name == _COMPUTE or node.model.partition("@")[0] == node.span.name:
        return node.model or node.span.name
    return f"{node.span.name} ({node.model})" if node.model else node.span.name
