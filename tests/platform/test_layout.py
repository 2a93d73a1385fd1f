"""The house rules that no linter knows."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPONENTS = ("platform", "router", "ensembles", "observability", "model_repository")


def tracked_files() -> list[Path]:
    # A container's checkout often belongs to somebody else, which git refuses to look at.
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_platform_is_not_a_package_because_it_would_shadow_the_standard_library() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert subprocess.run(
        [sys.executable, "-c", "import platform; platform.python_version()"], cwd=ROOT, check=True
    ).returncode == 0  # fmt: skip


def test_tests_hold_no_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_every_end_to_end_test_is_marked_so_that_none_runs_beside_the_unit_tests() -> None:
    files = (ROOT / "tests" / "e2e").rglob("test_*.py")
    assert not [file for file in files if "pytest.mark.e2e" not in file.read_text()]


def test_no_module_lies_loose_in_a_component() -> None:
    assert not [path for name in COMPONENTS for path in (ROOT / name).glob("*.py")]


def test_no_folder_beside_our_packages_is_taken_for_a_foreign_one() -> None:
    """An editable install puts the components on the import path: a folder `triton` there breaks torch."""
    beside = {path.name for name in COMPONENTS for path in (ROOT / name).iterdir() if path.is_dir()}
    foreign = {"triton", "ray", "torch", "onnx", "onnxruntime", "grpc", "prometheus_client", "opentelemetry"}
    assert not beside & foreign


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_explains_itself(name: str) -> None:
    assert (ROOT / name / "README.md").is_file()


def test_every_package_of_the_wheel_is_there_and_typed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert (ROOT / package / "__init__.py").is_file()
        assert (ROOT / package / "py.typed").is_file()


def test_locks_pin_every_package_by_hash_and_name_no_address() -> None:
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    of_extras = {"sdk", "platform", "gpu", "export", "dev", "docs", "integrations"}
    assert {lock.stem for lock in locks} == of_extras | {"bootstrap", "stages"}
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text, lock
        requirements = re.split(r"\n(?=[a-z0-9])", text.strip())
        assert all("--hash=sha256:" in requirement for requirement in requirements), lock


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed: nothing says what is tracked")
def test_no_tracked_file_is_over_one_megabyte() -> None:
    assert not [path for path in tracked_files() if path.is_file() and path.stat().st_size > 2**20]


def test_importing_zooserve_loads_nothing_heavy() -> None:
    code = "import sys, zooserve; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"ray", "torch", "onnxruntime", "tritonclient", "numpy", "fastapi", "pydantic"}


def test_nothing_that_serves_knows_the_vector_database() -> None:
    """It is a sidecar: an application and the SDK talk to it, and no layer that answers requests does."""
    for component in ("router", "ensembles", "observability"):
        for file in (ROOT / component).rglob("*.py"):
            for name in _imported(file):
                assert name.partition(".")[0] != "qdrant_client", file
                # The parser of event streams is shared; collections are the SDK's alone.
                assert not name.startswith("zooserve.sdk") or name.startswith("zooserve.sdk.sse"), file


def test_the_routers_application_loads_no_client_of_a_vector_database() -> None:
    code = "import sys, zooserve_router.app; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "zooserve_router" in loaded
    assert "qdrant_client" not in loaded


def _imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
