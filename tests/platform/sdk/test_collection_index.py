"""What a collection says of itself, and what its name leads to."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve.errors import BadInput, NoSuchCollection, UnmarkedCollection
from zooserve.sdk.index import (
    Index,
    Place,
    Sparse,
    find,
    index_of,
    mismatch,
    physical_name,
    require_marked,
    require_name,
)

SPACE, OTHER = "bc7ce5e304176975", "00ff00ff00ff00ff"
INDEX = Index(SPACE, "embed", "1", 384)
HYBRID = Index(SPACE, "embed", "1", 384, Sparse("embed_sparse", "1", OTHER))


@pytest.mark.parametrize("index", [INDEX, HYBRID, Index(SPACE, "embed", "2", 8, text_key="page_content")])
def test_what_is_written_is_read_back(index: Index) -> None:
    assert index_of("docs", json.loads(json.dumps(index.metadata))) == index


def test_the_metadata_is_as_the_docs_have_it() -> None:
    said = {"schema": 1, "space": SPACE, "model": "embed", "version": "1", "dimensions": 384, "sparse": None}
    assert INDEX.metadata == {"zooserve": said}
    assert HYBRID.metadata["zooserve"]["sparse"] == {"model": "embed_sparse", "version": "1", "space": OTHER}


@pytest.mark.parametrize("metadata", [None, {}, {"owner": "me"}, {"zooserve": None}])
def test_metadata_without_our_part_is_no_index(metadata) -> None:
    assert index_of("docs", metadata) is None
    with pytest.raises(UnmarkedCollection, match="adopt=True"):
        require_marked("docs", index_of("docs", metadata))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema 2"),
        ({"space": "BC7C"}, "BC7C"),
        ({"space": 7}, "7"),
        ({"model": ""}, "model"),
        ({"version": 1}, "version"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": True}, "dimensions"),
        ({"sparse": {"model": "s"}}, "'version' is missing"),
        ({"sparse": "s"}, "newer version"),
        ({"text_key": None}, "text_key"),
    ],
)
def test_a_part_of_ours_that_cannot_be_read_is_refused_by_name(change, said) -> None:
    metadata = {"zooserve": {**INDEX.metadata["zooserve"], **change}}
    with pytest.raises(UnmarkedCollection, match=said) as caught:
        index_of("docs", metadata)
    assert "docs" in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_metadata_is_an_index_or_a_refusal(said) -> None:
    with contextlib.suppress(UnmarkedCollection):
        assert index_of("docs", {"zooserve": said}) is None


@pytest.mark.parametrize("name", ["docs", "Docs_2.1-b", "a", "x" * 200, "docs--v2"])
def test_a_plain_name_is_taken(name: str) -> None:
    require_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "é", "x" * 201, "a\n", "docs\x00", f"docs--{SPACE}"]
)
def test_a_name_that_no_collection_can_have_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="name"):
        require_name(name)


def test_the_physical_name_is_told_by_the_spaces() -> None:
    assert physical_name("docs", INDEX) == f"docs--{SPACE}"
    assert physical_name("docs", HYBRID) == f"docs--{SPACE}-{OTHER}"


def test_a_name_leads_to_an_alias_a_collection_or_nothing() -> None:
    assert find("docs", {"docs--x"}, {"docs": "docs--x"}) == Place("docs", "docs--x")
    assert find("docs", {"docs"}, {}) == Place("docs", "docs")
    assert find("docs", {"manuals"}, {"docs": "manuals"}) == Place("docs", "manuals")
    assert find("docs", {"docs--x"}, {}) is None
    assert Place("docs", "docs--x").by_alias
    assert not Place("docs", "docs").by_alias


def test_an_alias_that_points_nowhere_says_where_it_could() -> None:
    with pytest.raises(NoSuchCollection, match=r"docs--gone.*docs--left"):
        find("docs", {"docs--left", "other"}, {"docs": "docs--gone"})
    with pytest.raises(NoSuchCollection, match="none of its own"):
        find("docs", {"other"}, {"docs": "docs--gone"})


def test_a_mismatch_names_both_spaces_both_models_and_the_way_out() -> None:
    said = str(mismatch("docs", INDEX, "embed@2", OTHER))
    assert all(part in said for part in ("docs", "embed@1", SPACE, "embed@2", OTHER))
    assert "zooserve reembed docs --to embed@2" in said
