"""Comparing the source with the new collection finds exactly what differs."""

import uuid
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import QdrantClient, models

from zooserve_cli.reembedding.comparing import differences, same_payload
from zooserve_cli.reembedding.rows import digest
from zooserve_cli.reembedding.store import Address, Store

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def store() -> Iterator[Store]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = QdrantClient(":memory:")
        yield Store(client, Address(folder=":memory:"))
        client.close()


def filled(store: Store, name: str, payloads: dict[Any, Any]) -> None:
    store._client.create_collection(name, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
    points = [models.PointStruct(id=point, vector=[1, 0], payload=payload) for point, payload in payloads.items()]
    if points:
        store._client.upsert(name, points)


def found(store: Store, dead: Mapping[Any, str] = MappingProxyType({})) -> tuple[set[Any], set[Any]]:
    told = list(differences(store, "source", "target", dead, ()))
    return {each.record.id for each in told if each.record}, {each.removed for each in told if not each.record}


IDS = [str(uuid.UUID(int=n << 100)) for n in range(1, 6)]


def test_equal_collections_differ_in_nothing(store: Store) -> None:
    payloads = {point: {"n": n} for n, point in enumerate([1, 700, *IDS])}
    filled(store, "source", payloads)
    filled(store, "target", dict(reversed(payloads.items())))
    assert found(store) == (set(), set())


def test_missing_changed_and_removed_points_are_told(store: Store) -> None:
    filled(store, "source", {1: {"a": 1}, 2: {"a": 2}, IDS[1]: {"a": None}, IDS[4]: {}})
    filled(store, "target", {2: {"a": 2.0}, 3: {"a": 3}, IDS[0]: {}, IDS[1]: {"a": None}})
    assert found(store) == ({1, 2, IDS[4]}, {3, IDS[0]})


def test_dead_letters_are_missing_only_if_they_were_changed(store: Store) -> None:
    filled(store, "source", {1: {}, 2: {}, 3: {"a": 1}})
    filled(store, "target", {2: {}})
    assert found(store, {1: digest({}), 3: digest({"a": 2})}) == ({3}, set())


def test_more_points_than_a_page_are_compared_to_the_last(store: Store) -> None:
    filled(store, "source", {n: {"n": n} for n in range(1500)})
    filled(store, "target", {n: {"n": n} for n in range(1499)})
    assert found(store) == ({1499}, set())


@given(JSON)
def test_a_payload_is_the_same_as_itself(value: Any) -> None:
    assert same_payload(value, value)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (True, 1), (None, 0), ({"a": None}, {}), ([1, 2], [2, 1]), ([1], [1, 1]), ("1", 1),
     ([{"a": 1.0}], [{"a": 1}])],
)  # fmt: skip
def test_what_json_tells_apart_is_not_the_same(one: Any, other: Any) -> None:
    assert not same_payload(one, other)
    assert not same_payload({"deep": [one]}, {"deep": [other]})
