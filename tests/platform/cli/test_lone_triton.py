"""A Triton that runs alone: what is started, and what is looked at."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from zooserve.catalogue import Catalogue, load_catalogue
from zooserve.errors import MissingPart
from zooserve.settings import Settings, TracingSettings, TritonSettings
from zooserve.triton.installation import Installation
from zooserve.triton.tracing import trace_arguments
from zooserve_cli.main import app
from zooserve_cli.plan import lone_triton

ROOT = Path(__file__).parents[3]
AT = TritonSettings(host="0.0.0.0", http_port=1, grpc_port=2, metrics_port=3, response_cache_bytes=1024)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    traced = TracingSettings(endpoint="http://collector:4318")
    return Settings(repository=ROOT / "model_repository", state_dir=tmp_path, zoo=AT, leaf=AT, tracing=traced)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "tritonserver", tmp_path / "backends", tmp_path / "caches", {})


@pytest.fixture
def catalogue() -> Catalogue:
    return load_catalogue(ROOT / "zoo.yaml").enabling("embed,chat")


def test_it_listens_where_it_is_told(settings: Settings, catalogue: Catalogue, installation: Installation) -> None:
    server, _ = lone_triton("leaf", settings, catalogue, installation)
    command = server.command()
    for word in ("--http-address=0.0.0.0", "--http-port=1", "--grpc-port=2", "--metrics-port=3"):
        assert word in command
    assert f"--model-repository={ROOT / 'model_repository' / 'leaf'}" in command
    assert "--cache-config=local,size=1024" in command


def test_the_zoos_spans_go_to_the_collector_and_the_leaf_has_none(
    settings: Settings, catalogue: Catalogue, installation: Installation
) -> None:
    traced = trace_arguments("http://collector:4318/v1/traces")
    zoo, _ = lone_triton("zoo", settings, catalogue, installation)
    leaf, _ = lone_triton("leaf", settings, catalogue, installation)
    assert set(traced) <= set(zoo.command())
    assert not set(traced) & set(leaf.command())


def test_it_loads_and_asks_what_the_enabled_models_need(
    settings: Settings, catalogue: Catalogue, installation: Installation
) -> None:
    zoo, looks = lone_triton("zoo", settings, catalogue, installation)
    assert "--load-model=embed_encoder" in zoo.command()
    assert "--load-model=rerank" not in zoo.command()
    assert looks.models == ["embed", "embed_bulk", "embed_long", "embed_bulk_long"]
    _, looks = lone_triton("leaf", settings, catalogue, installation)
    assert looks.models == ["tensorrt_llm"]


@pytest.mark.parametrize("role", ["zoo", "leaf"])
def test_a_repository_that_is_not_there_is_told_before_anything_is_started(tmp_path: Path, role: str) -> None:
    places = {"STATE_DIR": tmp_path, "REPOSITORY": tmp_path / "missing", "CATALOGUE": ROOT / "zoo.yaml"}
    done = CliRunner().invoke(app, ["triton", role], env={f"ZOOSERVE_{name}": str(at) for name, at in places.items()})
    assert isinstance(done.exception, MissingPart)
    assert str(done.exception).startswith(f"{tmp_path / 'missing' / role} is no folder")
