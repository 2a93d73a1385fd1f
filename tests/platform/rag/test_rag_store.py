"""The demo's collection, in Qdrant's local mode."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from zooserve.errors import NotRunning, SetupError, SpaceMismatch
from zooserve_cli.rag.chunks import Chunk
from zooserve_cli.rag.store import Store, digest_of

CHUNKS = [Chunk("T", "here", "H", text) for text in ("north", "east")]
VECTORS = [[0.0, 1.0], [1.0, 0.0]]


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with closing(Store.local(tmp_path)) as store:
        store.begin("embed@1", digest_of(CHUNKS), 2)
        store.add(0, CHUNKS, VECTORS)
        yield store


def test_the_nearest_passage_is_found_whole(store) -> None:
    hits = store.search([0.1, 0.9], 1)
    assert [hit.chunk for hit in hits] == [CHUNKS[0]]


def test_vectors_of_another_version_are_refused(store) -> None:
    store.require_space("embed@1")
    with pytest.raises(SpaceMismatch, match=r"embed@1.*embed@2.*--rebuild"):
        store.require_space("embed@2")


def test_a_collection_knows_its_corpus_and_whether_it_is_whole(store) -> None:
    assert store.holds(digest_of(CHUNKS), 2)
    assert not store.holds(digest_of(CHUNKS), 3)
    assert not store.holds(digest_of(CHUNKS[:1]), 2)


def test_beginning_anew_empties_it(store) -> None:
    store.begin("embed@2", "other", 2)
    assert store.search([0.1, 0.9], 5) == []
    store.require_space("embed@2")


def test_a_missing_collection_fits_every_space(tmp_path) -> None:
    with closing(Store.local(tmp_path)) as empty:
        empty.require_space("embed@9")
        assert not empty.holds("any", 0)


# qdrant-client leaves its lock file open when it finds it taken.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_folder_in_use_is_a_clear_error(store, tmp_path) -> None:
    with pytest.raises(SetupError, match="--store"):
        Store.local(tmp_path)


def test_a_server_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(NotRunning, match="No Qdrant answers"):
        Store.server("http://127.0.0.1:1", None)
