"""Boxes in rows, nothing over anything else."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from zooserve_ensembles.drawing.layout import Arc, Layout, Place, Size, arranged, spread

BOX = Size(100, 40)
LABEL = Size(140, 30)


def rows(layout: Layout) -> list[list[int]]:
    tops = sorted({place.y for place in layout.boxes})
    return [[number for number, place in enumerate(layout.boxes) if place.y == top] for top in tops]


def chain(*pairs: tuple[int, int], count: int, last: set[int] = frozenset()) -> Layout:
    return arranged([BOX] * count, [Arc(*pair, LABEL) for pair in pairs], first={0}, last=last)


def overlap(one: Place, other: Place) -> bool:
    return (
        abs(one.x - other.x) * 2 < one.size.width + other.size.width - 1e-6
        and abs(one.y - other.y) * 2 < one.size.height + other.size.height
    )


def test_a_chain_is_a_straight_line() -> None:
    layout = chain((0, 1), (1, 2), count=3)
    assert rows(layout) == [[0], [1], [2]]
    assert {round(place.x) for place in layout.boxes} == {round(layout.boxes[0].x)}


def test_a_box_stands_below_everything_that_feeds_it() -> None:
    assert rows(chain((0, 1), (0, 2), (1, 2), (2, 3), count=4)) == [[0], [1], [2], [3]]


def test_an_output_stands_in_the_last_row() -> None:
    assert rows(chain((0, 1), (1, 2), (2, 3), (1, 4), count=5, last={3, 4})) == [[0], [1], [2], [3, 4]]


def test_a_source_that_is_no_input_stands_right_above_what_it_feeds() -> None:
    assert rows(chain((0, 1), (1, 2), (3, 2), count=4)) == [[0], [1, 3], [2]]


PAIRS = st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] != pair[1])


@given(st.lists(PAIRS, unique=True, max_size=16))
def test_neither_boxes_nor_labels_cover_each_other_whatever_is_linked(pairs: list[tuple[int, int]]) -> None:
    layout = chain(*pairs, count=8)
    things = [*layout.boxes, *(way[0] for way in layout.ways)]
    assert not [pair for pair in combinations(things, 2) if overlap(*pair)]
    assert all(place.left >= 0 and place.left + place.size.width <= layout.size.width for place in things)


def test_nothing_is_laid_out_as_nothing() -> None:
    assert chain(count=0).boxes == ()


def test_links_that_need_not_cross_do_not() -> None:
    layout = chain((0, 3), (1, 2), count=4)
    assert (layout.boxes[0].x < layout.boxes[1].x) == (layout.boxes[3].x < layout.boxes[2].x)


def test_a_long_link_passes_beside_the_boxes_of_the_rows_between() -> None:
    layout = chain((0, 1), (1, 2), (2, 3), (0, 3), count=4)
    assert not [place for place in layout.ways[3][1:] for box in layout.boxes if overlap(place, box)]


def test_a_cycle_is_laid_out_in_the_order_of_the_boxes() -> None:
    assert rows(chain((0, 1), (1, 2), (2, 1), count=3)) == [[0], [1], [2]]


def test_parts_that_nothing_connects_stand_side_by_side() -> None:
    assert chain((0, 1), (2, 3), count=4).size.width < 2 * LABEL.width + 100


def test_neighbours_that_want_the_same_place_share_it_evenly() -> None:
    assert spread([0, 0, 100], [10, 10, 10], 10) == [-10, 10, 100]
