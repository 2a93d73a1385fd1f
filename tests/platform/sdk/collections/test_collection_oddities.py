"""Ids and filters as odd callers give them."""

from typing import Any

import pytest

from zooserve import Chunk, Document
from zooserve.errors import BadInput
from zooserve.sdk.chunks import passages, point_id
from zooserve.sdk.points import filter_of


def test_documents_of_one_name_are_one_document() -> None:
    with pytest.raises(BadInput, match="twice"):
        list(passages([Document(7, ["one"]), Document("7", ["two"])]))
    assert len(list(passages([Chunk("one", 7), Chunk("two", "7")]))) == 2


def test_an_id_too_long_to_be_written_down_is_refused() -> None:
    for value in (10**5000, -(10**5000)):
        with pytest.raises(BadInput, match="no unsigned 64-bit integer"):
            point_id(value)


@pytest.mark.parametrize("given", [{"year": [2025, "2026"]}, {7: ["a"]}, {"year": [1.5]}])
def test_a_filter_that_qdrant_has_not_is_refused(given: Any) -> None:
    with pytest.raises(BadInput, match="filter"):
        filter_of(given)
