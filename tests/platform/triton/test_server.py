"""What a server's command line says, and what it knows of its repository, without starting one."""

import os
from pathlib import Path
from typing import Any

import pytest

from zooserve.triton.installation import Installation
from zooserve.triton.server import Addresses, TritonServer

INSTALLATION = Installation(Path("/bin/true"), Path("backends"), Path("caches"), dict(os.environ))


def server(repository: Path, **options: Any) -> TritonServer:
    log = repository.parent / "triton.log"
    return TritonServer("zoo", INSTALLATION, repository, Addresses("127.0.0.1", 1, 2, 3), log, **options)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "zoo/embed/1").mkdir(parents=True)
    (tmp_path / "zoo/embed/1/model.onnx").write_bytes(b"old")
    return tmp_path / "zoo"


def test_no_cache_is_asked_for_unless_it_has_a_size(repository: Path) -> None:
    assert not server(repository).caches
    assert not [word for word in server(repository).command() if "cache-config" in word]
    sized = server(repository, response_cache_bytes=1024)
    assert sized.caches
    assert "--cache-config=local,size=1024" in sized.command()


def test_latencies_are_asked_for_as_quantiles_too(repository: Path) -> None:
    command = server(repository).command()
    assert "--metrics-config=summary_latencies=true" in command
    assert "--metrics-config=counter_latencies=true" in command


def test_the_versions_of_what_it_loads_are_known(repository: Path) -> None:
    (repository / "rerank/2").mkdir(parents=True)
    (repository / "rerank/warmup").mkdir()
    assert sorted(server(repository).versions()) == [("embed", "1"), ("rerank", "2")]
    assert server(repository, models=["embed"]).versions() == [("embed", "1")]


def test_a_file_changed_since_the_start_is_noticed(repository: Path) -> None:
    one = server(repository)
    one.start()
    one.stop(5)
    assert not one.files_changed()
    (repository / "embed/1/model.onnx").write_bytes(b"newer")
    assert one.files_changed()


def test_the_code_that_python_compiles_by_the_way_is_no_change(repository: Path) -> None:
    one = server(repository)
    one.start()
    one.stop(5)
    (repository / "embed/1/model.cpython-311.pyc").write_bytes(b"compiled")
    assert not one.files_changed()
