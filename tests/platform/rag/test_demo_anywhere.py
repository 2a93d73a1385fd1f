"""The demo in a folder where nothing of the platform is."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import zooserve
from zooserve import Zoo
from zooserve.errors import InputTooLong, MissingPart
from zooserve_cli.demo import _ingested, _require_models
from zooserve_cli.main import app
from zooserve_cli.rag.corpus import read_corpus
from zooserve_cli.rag.ingest import passages_of


def cards(*names: str) -> httpx.Response:
    return httpx.Response(
        200, json={"data": [{"id": name, "version": "1", "task": "t", "ready": True} for name in names]}
    )


def test_it_asks_the_router_alone_and_no_file_of_a_checkout(tmp_path, monkeypatch) -> None:
    """What it lacks there is told by what the router serves, not by a zoo.yaml that nobody has."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["demo", "--router", "http://127.0.0.1:9", "--documents", "1"])
    assert isinstance(done.exception, zooserve.errors.Unreachable)
    assert "zoo.yaml" not in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_models_that_are_not_served_are_named_before_anything_is_embedded() -> None:
    with httpx.Client(transport=httpx.MockTransport(lambda request: cards("embed", "rerank"))) as http:
        with Zoo("http://zoo", http=http) as zoo, pytest.raises(MissingPart, match=r"rag_query, chat.*zooserve up"):
            _require_models(zoo)
        every = httpx.MockTransport(lambda request: cards("embed", "rerank", "rag_query", "chat"))
        with httpx.Client(transport=every) as other, Zoo("http://zoo", http=other) as zoo:
            _require_models(zoo)


def test_another_pythons_documentation_is_cut_shorter_where_it_has_to_be(monkeypatch) -> None:
    lengths: list[int] = []

    def ingest(docs: Any, passages: Any, progress: Any, *, rebuild: bool) -> str:
        lengths.append(max(len(passage.embedded) for passage in passages))
        if len(lengths) == 1:
            raise InputTooLong("a passage has 300 tokens")
        return "stored"

    monkeypatch.setattr("zooserve_cli.rag.ingest.ingest", ingest)
    card = {"id": "embed", "version": "1", "task": "embed", "ready": True, "limits": {"max_tokens": 256}}
    served = httpx.MockTransport(lambda request: httpx.Response(200, json=card))
    with httpx.Client(transport=served) as http, Zoo("http://z", http=http) as zoo:
        docs: Any = None
        screen: Any = SimpleNamespace(embedding=None)
        done: Any = _ingested(zoo, docs, screen, 20, rebuild=False)
    assert done == "stored"
    assert lengths[1] < lengths[0]


def test_no_passage_of_this_pythons_documentation_is_longer_than_the_model_reads() -> None:
    """By the model's own tokenizer, where the weights are there; elsewhere it is estimated alone."""
    tokenizers = pytest.importorskip("tokenizers")
    from zooserve.settings import Settings

    found = sorted(Settings().resolved().repository.glob("zoo/embed_tokenizer*/**/tokenizer.json"))
    if not found:
        pytest.skip("the tokenizer of `embed` is not here")
    counting = tokenizers.Tokenizer.from_file(str(found[0]))
    counting.no_truncation()
    counting.no_padding()
    texts = [passage.embedded for passage in passages_of(read_corpus(60), 256)]
    assert max(len(one.ids) for one in counting.encode_batch(texts)) <= 256
