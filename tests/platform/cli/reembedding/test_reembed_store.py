"""A Qdrant server as a job meets it, behind a stand-in over HTTP: its bounds, its refusals, its bad moments."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from qdrant_client import models

from zooserve.errors import JobRefused, StoreRefused, StoreUnavailable
from zooserve_cli.reembedding import store as store_module
from zooserve_cli.reembedding.layout import Layout
from zooserve_cli.reembedding.store import Address, Store

NAME = "docs--old"
REFUSED = json.dumps({"status": {"error": "said so"}, "time": 0.0}).encode()
POINTS = 6


@pytest.fixture
def store(qdrant: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Opened, on a server with one empty collection."""
    monkeypatch.setattr(store_module.time, "sleep", lambda seconds: None)
    params = models.VectorParams(size=2, distance=models.Distance.COSINE)
    qdrant.client.create_collection(NAME, vectors_config=params)
    with Store.opened(Address(url=qdrant.url)) as opened:
        qdrant.asked.clear()
        yield opened


def point(number: int, size: int = 1) -> Any:
    return models.PointStruct(id=number, vector=[1, 0], payload={"text": "x" * size})


def read(store: Store, limit: int) -> list[list[Any]]:
    pages, offset = [], None
    while not pages or offset is not None:
        records, offset = store.scroll(NAME, offset, limit)
        pages.append(records)
    return pages


def failing(times: int, status: int, method: str, end: str, headers: dict[str, str] | None = None) -> Any:
    """Such requests fail so often."""
    left = [times]

    def fault(asked: str, path: str) -> Any:
        if asked == method and path.endswith(end) and left[0]:
            left[0] -= 1
            return status, headers or {}, REFUSED
        return None

    return fault


def test_pages_of_heavy_points_are_small_and_none_is_left_out(store: Store, qdrant: Any) -> None:
    sizes = [1] * 40 + [3_000_000] * 5 + [1] * 40 + [20_000_000] + [1] * 40
    qdrant.client.upsert(NAME, [point(number, size) for number, size in enumerate(sizes)])
    pages = read(store, 64)
    assert [record.id for page in pages for record in page] == list(range(len(sizes)))
    for page in pages:
        assert len(page) == 1 or sum(len(record.payload["text"]) for record in page) < 8 << 20
    assert len(pages) < 60


def test_pages_of_a_local_folder_are_cut_by_their_bytes_too(tmp_path: Any) -> None:
    with Store.opened(Address(folder=str(tmp_path)), create=True) as local:
        client = local._client
        client.create_collection(NAME, vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
        client.upsert(NAME, [point(number, 3_000_000) for number in range(7)])
        pages = read(local, 64)
    assert [record.id for page in pages for record in page] == list(range(7))
    assert max(map(len, pages)) == 2


def test_no_request_is_larger_than_a_server_takes(store: Store, qdrant: Any) -> None:
    assert store.upsert(NAME, [point(number, 3_000_000) for number in range(9)]) == {}
    assert qdrant.client.count(NAME).count == 9
    assert qdrant.asked.count(f"PUT /collections/{NAME}/points") == 5


def test_points_that_are_refused_take_no_other_with_them(store: Store, qdrant: Any) -> None:
    points = [point(number) for number in range(POINTS)]
    points[4].vector = [1, 2, 3]
    assert store.upsert(NAME, points).keys() == {4}
    assert qdrant.client.count(NAME).count == POINTS - 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_in_the_middle_ends_the_job_and_blames_no_point(
    store: Store, qdrant: Any, status: int
) -> None:
    qdrant.fault = failing(-1, status, "PUT", "/points")
    with pytest.raises(StoreRefused, match=f"refuses the key.*{status}|{status}.*said so"):
        store.upsert(NAME, [point(number) for number in range(POINTS)])
    assert len(qdrant.asked) == 1


def test_a_collection_that_is_gone_ends_the_job_and_blames_no_point(store: Store, qdrant: Any) -> None:
    qdrant.client.delete_collection(NAME)
    with pytest.raises(StoreRefused, match="404"):
        store.upsert(NAME, [point(number) for number in range(POINTS)])


def test_a_server_that_fails_in_the_middle_of_a_write_is_asked_again(store: Store, qdrant: Any) -> None:
    qdrant.fault = failing(3, 500, "PUT", "/points")
    assert store.upsert(NAME, [point(number) for number in range(POINTS)]) == {}
    assert qdrant.client.count(NAME).count == POINTS


def test_one_that_asks_too_much_of_is_waited_for(store: Store, qdrant: Any) -> None:
    qdrant.fault = failing(2, 429, "PUT", "/points", {"retry-after": "1"})
    assert store.upsert(NAME, [point(1)]) == {}


def test_one_that_goes_on_failing_ends_the_job(store: Store, qdrant: Any) -> None:
    qdrant.fault = failing(-1, 500, "PUT", "/points")
    with pytest.raises(StoreUnavailable, match="500"):
        store.upsert(NAME, [point(1)])


def test_one_that_is_too_slow_is_asked_again(store: Store, qdrant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, slow = httpx.Client.send, [2]

    def send(self: Any, request: httpx.Request, **named: Any) -> Any:
        if request.url.path.endswith("/points") and slow[0]:
            slow[0] -= 1
            raise httpx.ReadTimeout("timed out")
        return real(self, request, **named)

    monkeypatch.setattr(httpx.Client, "send", send)
    assert store.upsert(NAME, [point(1)]) == {}


def test_a_switch_whose_answer_was_lost_is_looked_at_before_it_is_tried_again(store: Store, qdrant: Any) -> None:
    lost = [True]

    def fault(method: str, path: str) -> Any:
        if path == "/collections/aliases" and lost.pop():
            lost.append(False)
            alias = models.CreateAlias(collection_name=NAME, alias_name="docs")
            qdrant.client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
            return 500, {}, REFUSED
        return None

    qdrant.fault = fault
    store.switch("docs", NAME, "")
    assert store.led_to("docs") == NAME
    assert qdrant.asked.count("POST /collections/aliases") == 1


def test_an_alias_that_leads_elsewhere_meanwhile_is_left_as_it_is(store: Store) -> None:
    for name in ("docs--new", "docs--other"):
        store.create(name, Layout.of(store.info(NAME)))
    store.switch("docs", "docs--other", "")
    with pytest.raises(JobRefused, match=r"leads to docs--other now and led to docs--old before.*point docs back"):
        store.switch("docs", "docs--new", NAME)
    assert store.led_to("docs") == "docs--other"
    store.switch("docs", "docs--new", "docs--other")
    assert store.led_to("docs") == "docs--new"
