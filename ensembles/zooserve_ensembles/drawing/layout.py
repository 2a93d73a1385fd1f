"""A layered layout for small graphs: rows from top to bottom, few crossings, straight lines.

Each link is a chain of vertices, one for each row that it crosses. Every second row holds the labels, as vertices like
any other, so that nothing is written over anything else.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from math import inf
from statistics import fmean

__all__ = ["Arc", "Layout", "Place", "Size", "arranged", "spread"]

GAP_X = 28.0
GAP_Y = 26.0
SWEEPS = 12


@dataclass(frozen=True)
class Size:
    """Width and height of what is placed."""

    width: float
    height: float


@dataclass(frozen=True)
class Arc:
    """A link between two boxes, with the room that its label takes."""

    source: int
    target: int
    label: Size = Size(0, 0)


@dataclass(frozen=True)
class Place:
    """A rectangle by its centre."""

    x: float
    y: float
    size: Size

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.y - self.size.height / 2

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.size.height / 2

    @property
    def left(self) -> float:
        """Its left edge."""
        return self.x - self.size.width / 2


@dataclass(frozen=True)
class Layout:
    """Where the boxes are, and the way of each arc: what it passes between them, the label first."""

    boxes: tuple[Place, ...]
    ways: tuple[tuple[Place, ...], ...]
    size: Size


def arranged(boxes: Sequence[Size], arcs: Sequence[Arc], first: Collection[int], last: Collection[int]) -> Layout:
    """Place boxes in rows below those that feed them; those named in the first and the last row, whatever they feed."""
    rows = _rows(len(boxes), arcs, first, last)
    sizes, row_of = list(boxes), [2 * row for row in rows]
    chains: list[list[int]] = []
    for arc in arcs:
        upper, lower = sorted((row_of[arc.source], row_of[arc.target]))
        chains.append(list(range(len(sizes), len(sizes) + max(lower - upper - 1, 0))))
        row_of += range(upper + 1, upper + 1 + len(chains[-1]))
        sizes += [arc.label, *[Size(0, 0)] * len(chains[-1])][: len(chains[-1])]
    edges = [edge for arc, chain in zip(arcs, chains, strict=True) for edge in pairwise(_whole(arc, chain, row_of))]
    order = _ordered(row_of, edges)
    xs = _straightened(_xs(order, sizes, edges), chains, order, sizes)
    xs = _closed_up(xs, order, sizes, edges)
    heights = [max((sizes[number].height for number in row), default=0) for row in order]
    # What passes a row passes all of it, so that a link bends between the rows only.
    tall = [size if size.width else Size(0, heights[row]) for size, row in zip(sizes, row_of, strict=True)]
    ys = list(_middles(heights))
    places = [Place(xs[number] + GAP_X, ys[row_of[number]], size) for number, size in enumerate(tall)]
    return Layout(
        boxes=tuple(places[: len(boxes)]),
        ways=tuple(tuple(places[number] for number in chain) for chain in chains),
        size=Size(
            max((place.x + place.size.width / 2 for place in places), default=0) + GAP_X,
            max((place.bottom for place in places), default=0) + GAP_Y,
        ),
    )


def _whole(arc: Arc, chain: Sequence[int], row_of: Sequence[int]) -> list[int]:
    """An arc's vertices from the upper end to the lower, whichever way it points."""
    ends = sorted((arc.source, arc.target), key=lambda number: row_of[number])
    return [ends[0], *chain, ends[1]]


def _rows(count: int, arcs: Sequence[Arc], first: Collection[int], last: Collection[int]) -> list[int]:
    """The longest way from a source to each box; other sources stand right above what they feed."""
    after: Mapping[int, list[int]] = defaultdict(list)
    for source, target in _without_cycles(arcs):
        after[source].append(target)
    rows = [0] * count
    downwards = [*TopologicalSorter({number: after[number] for number in range(count)}).static_order()][::-1]
    for number in downwards:
        for target in after[number]:
            rows[target] = max(rows[target], rows[number] + 1)
    for number in downwards:
        if rows[number] == 0 and number not in first and after[number]:
            rows[number] = min(rows[target] for target in after[number]) - 1
    return [max(rows) if number in last else row for number, row in enumerate(rows)]


def _without_cycles(arcs: Sequence[Arc]) -> list[tuple[int, int]]:
    """The arcs, without those that close a cycle: rather one that leads back in the order of the boxes."""
    kept: list[tuple[int, int]] = []
    for arc in sorted(arcs, key=lambda arc: arc.source > arc.target):
        if not _reaches(arc.target, arc.source, kept):
            kept.append((arc.source, arc.target))
    return kept


def _reaches(start: int, end: int, edges: Sequence[tuple[int, int]]) -> bool:
    reached = {start}
    while found := {target for source, target in edges if source in reached} - reached:
        reached |= found
    return end in reached


def _ordered(row_of: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The vertices of each row from left to right, by the middle of their neighbours, as long as that helps."""
    rows = [
        [number for number, row in enumerate(row_of) if row == wanted] for wanted in range(max(row_of, default=-1) + 1)
    ]
    best, fewest = rows, _crossings(rows, edges)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = _neighbours(edges, upper=downwards)
        rows = [list(row) for row in rows]
        for index in range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1):
            beside = rows[index - 1] if downwards else rows[index + 1]
            place = {number: spot for spot, number in enumerate(beside)}
            middle = {
                number: fmean([place[other] for other in neighbours[number]] or [spot])
                for spot, number in enumerate(rows[index])
            }
            rows[index].sort(key=middle.__getitem__)
        if (crossings := _crossings(rows, edges)) < fewest:
            best, fewest = rows, crossings
    return best


def _crossings(rows: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]]) -> int:
    spot = {number: index for row in rows for index, number in enumerate(row)}
    level = {number: index for index, row in enumerate(rows) for number in row}
    by_level: Mapping[int, list[tuple[int, int]]] = defaultdict(list)
    for upper, lower in edges:
        by_level[level[upper]].append((spot[upper], spot[lower]))
    return sum(
        (one[0] - other[0]) * (one[1] - other[1]) < 0
        for found in by_level.values()
        for number, one in enumerate(found)
        for other in found[:number]
    )


def _neighbours(edges: Sequence[tuple[int, int]], *, upper: bool) -> Mapping[int, list[int]]:
    found: Mapping[int, list[int]] = defaultdict(list)
    for above, below in edges:
        if upper:
            found[below].append(above)
        else:
            found[above].append(below)
    return found


def _xs(order: Sequence[Sequence[int]], sizes: Sequence[Size], edges: Sequence[tuple[int, int]]) -> dict[int, float]:
    """Each vertex as near to the middle of its neighbours as the others of its row allow."""
    xs: dict[int, float] = {}
    for row in order:
        xs |= _placed([0.0] * len(row), row, sizes)
    sides = _neighbours(edges, upper=True), _neighbours(edges, upper=False)
    for sweep in range(4 * SWEEPS):
        neighbours = sides[sweep % 2]
        for row in order if sweep % 2 == 0 else reversed(order):
            wanted = [fmean([xs[other] for other in neighbours[number]] or [xs[number]]) for number in row]
            xs |= _placed(wanted, row, sizes)
    return xs


def _placed(wanted: Sequence[float], row: Sequence[int], sizes: Sequence[Size]) -> Mapping[int, float]:
    return dict(zip(row, spread(wanted, [sizes[number].width for number in row], GAP_X), strict=True))


def spread(wanted: Sequence[float], widths: Sequence[float], gap: float) -> list[float]:
    """Centres in that order, apart by the gap, nearest to the wanted ones: neighbours that collide move as a block."""
    offsets = list(accumulate(((one + other) / 2 + gap for one, other in pairwise(widths)), initial=0.0))
    blocks: list[list[float]] = []
    for target, offset in zip(wanted, offsets, strict=False):
        blocks.append([target - offset])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    starts = (start for block in blocks for start in [fmean(block)] * len(block))
    return [start + offset for start, offset in zip(starts, offsets, strict=False)]


def _straightened(
    xs: Mapping[int, float], chains: Iterable[Sequence[int]], order: Sequence[Sequence[int]], sizes: Sequence[Size]
) -> dict[int, float]:
    """The chains as straight lines, where their rows have room for one."""
    moved = dict(xs)
    for chain in chains:
        for part in (chain, chain[1:]):
            rooms = [_room(number, moved, order, sizes) for number in part]
            least, most = max((low for low, _ in rooms), default=0), min((high for _, high in rooms), default=-1)
            if least <= most:
                straight = min(max(fmean(moved[number] for number in part), least), most)
                moved |= dict.fromkeys(part, straight)
                break
    return moved


def _room(
    number: int, xs: Mapping[int, float], order: Sequence[Sequence[int]], sizes: Sequence[Size]
) -> tuple[float, float]:
    """Between which positions a vertex may move without touching its neighbours in the row."""
    row = next(row for row in order if number in row)
    spot = row.index(number)
    apart = [(sizes[number].width + sizes[other].width) / 2 + GAP_X for other in row]
    low = xs[row[spot - 1]] + apart[spot - 1] if spot else -inf
    high = xs[row[spot + 1]] - apart[spot + 1] if spot + 1 < len(row) else inf
    return low, high


def _closed_up(
    xs: Mapping[int, float], order: Sequence[Sequence[int]], sizes: Sequence[Size], edges: Sequence[tuple[int, int]]
) -> dict[int, float]:
    """Parts that nothing connects, moved together: the sweeps push them apart and never back."""
    moved: dict[int, float] = {}
    edge = 0.0
    for part in sorted(_parts(range(len(sizes)), edges), key=lambda part: min(xs[number] for number in part)):
        left = min(xs[number] - sizes[number].width / 2 for number in part)
        moved |= {number: xs[number] - left + edge for number in part}
        edge = max(moved[number] + sizes[number].width / 2 for number in part) + GAP_X
    return moved


def _parts(numbers: Iterable[int], edges: Sequence[tuple[int, int]]) -> list[set[int]]:
    parts = [{number} for number in numbers]
    for edge in edges:
        joined = [part for part in parts if part & set(edge)]
        parts = [part for part in parts if part not in joined] + [set().union(*joined)]
    return parts


def _middles(heights: Iterable[float]) -> Iterator[float]:
    """The middle of each row."""
    top = GAP_Y
    for height in heights:
        yield top + height / 2
        top += height + GAP_Y
