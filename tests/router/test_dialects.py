"""Every error has a status and a shape."""

from collections.abc import Iterator

import pytest

from zooserve import errors
from zooserve_router.dialects import SHAPES, STATUS, dialect_of_path, error_headers, status_of


def leaves(kind: type[errors.ServingError]) -> Iterator[type[errors.ServingError]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for child in below:
        yield from leaves(child)


@pytest.mark.parametrize("kind", list(leaves(errors.ServingError)))
def test_every_leaf_of_the_tree_has_a_status(kind):
    assert 400 <= status_of(kind("m")) < 600


def test_the_table_names_only_errors_of_the_tree():
    assert all(issubclass(kind, errors.ServingError) for kind in STATUS)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/embeddings", "openai"),
        ("/v1/rerank", "cohere"),
        ("/v2/rerank", "cohere"),
        ("/v2", "kserve"),
        ("/embed_sparse", "tei"),
        ("/v2/models/embed/infer", "kserve"),
        ("/v20", "openai"),
        ("//v2/models", "openai"),
    ],
)
def test_the_path_chooses_the_dialect(path, dialect):
    assert dialect_of_path(path) == dialect


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_carries_the_message(shape):
    assert "what to do" in str(shape(errors.BadInput("what to do")))


def test_only_an_overload_says_when_to_come_back():
    told = error_headers(errors.Overloaded("m", retry_after_s=0.2))
    assert told == {"x-zooserve-error-code": "overloaded", "retry-after": "1", "retry-after-ms": "200"}
    assert error_headers(errors.BadInput("m")) == {"x-zooserve-error-code": "invalid_value"}


def test_the_code_in_the_headers_is_the_kinds_and_never_a_foreign_one():
    told = error_headers(errors.InputTooLong("m", code="x\r\ny"))
    assert told == {"x-zooserve-error-code": "context_length_exceeded"}
