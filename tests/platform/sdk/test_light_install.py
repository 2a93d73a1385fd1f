"""What importing the package, its clients, and making one loads. Each in a fresh interpreter."""

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import zooserve
from zooserve import sdk

HEAVY = {
    "fastapi",
    "grpc",
    "h5py",
    "jinja2",
    "jsonschema_rs",
    "numpy",
    "onnxruntime",
    "opentelemetry",
    "orjson",
    "pandas",
    "PIL",
    "prometheus_client",
    "psutil",
    "pydantic",
    "qdrant_client",
    "ray",
    "ruamel",
    "starlette",
    "tokenizers",
    "torch",
    "tritonclient",
    "typer",
    "uvloop",
    "xllamacpp",
    "zooserve_cli",
    "zooserve_router",
}


def loaded_by(statement: str) -> set[str]:
    """Names of all modules."""
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import zooserve",
        "from zooserve import Zoo, AsyncZoo",
        "from zooserve import Zoo; Zoo().close()",
        "from zooserve import AsyncZoo; AsyncZoo()",
        "from zooserve.sdk import *",
    ],
)
def test_nothing_heavy_is_loaded(statement: str) -> None:
    assert not {name.partition(".")[0] for name in loaded_by(statement)} & HEAVY


def test_the_package_alone_loads_no_client() -> None:
    loaded = loaded_by("import zooserve")
    assert not {name for name in loaded if name.startswith("zooserve.")}
    assert not loaded & {"httpx", "asyncio", "ssl", "json"}


def test_a_client_does_not_load_the_other_nor_httpx_until_one_is_made() -> None:
    loaded = loaded_by("from zooserve import Zoo")
    assert not {name for name in loaded if name.startswith("zooserve.sdk.aio.")}
    assert not loaded & {"httpx", "httpcore", "ssl", "asyncio", "concurrent.futures.process"}
    assert "httpx" not in loaded_by("from zooserve import AsyncZoo")
    assert "httpx" in loaded_by("from zooserve import Zoo; Zoo().close()")


@pytest.mark.parametrize("package", [zooserve, sdk])
def test_every_name_is_there_and_is_the_one_that_it_says(package: ModuleType) -> None:
    names = set(package.__all__) - {"__version__"}
    for name in names:
        thing = getattr(package, name)
        assert thing is getattr(importlib.import_module(thing.__module__), name)
    assert names <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'Zebra'"):
        _ = package.Zebra
