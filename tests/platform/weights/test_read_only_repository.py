"""A fetch as a container's user runs it: what may not be written is told at once, what is in place is enough."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
PLACE = "zoo/raw/1/graph.bin"
NOT_ROOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Root may write anywhere, unless it gives that right away."""

Fetch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fetch(pip_world) -> Fetch:
    """Runs `zooserve fetch` as a process in the small world, whose lock holds one file and no build."""
    package = pip_world.document["packages"][0]
    package["files"][0] = {"path": "data/graph.bin", "sha256": package["files"][0]["sha256"], "place": [PLACE]}
    YAML().dump({"packages": [package]}, pip_world.root / "weights.lock")
    paths = {"WEIGHTS_LOCK": "weights.lock", "REPOSITORY": "repository", "CACHE_DIR": "cache"}
    environment = {f"ZOOSERVE_{name}": str(pip_world.root / path) for name, path in paths.items()}
    environment["ZOOSERVE_CATALOGUE"] = str(ROOT / "zoo.yaml")
    return lambda *arguments: subprocess.run(
        [*NOT_ROOT, sys.executable, "-m", "zooserve_cli", "fetch", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def read_only(folder: Path) -> None:
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        path.chmod(0o555)


@pytest.mark.parametrize("folder", ["repository", "cache", "repository/zoo/raw/1"])
def test_a_folder_that_may_not_be_written_is_named_with_the_user_before_anything_is_downloaded(
    fetch: Fetch, pip_world, folder: str
) -> None:
    (pip_world.repository / PLACE).parent.mkdir(parents=True)
    pip_world.cache.mkdir()
    (pip_world.root / folder).chmod(0o555)
    done = fetch()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{pip_world.root / folder} cannot be written: Permission denied, for user {os.geteuid()}" in line
    assert not list(pip_world.cache.glob("downloads/*"))


def test_what_is_in_place_is_enough_without_index_cache_or_a_right_to_write(fetch: Fetch, pip_world) -> None:
    assert fetch().returncode == 0
    os.utime(pip_world.repository / PLACE)  # as a copied or restored folder: it has to be hashed, and cannot be noted
    for gone in (*pip_world.index.iterdir(), *(path for path in pip_world.cache.rglob("*") if path.is_file())):
        gone.unlink()
    read_only(pip_world.cache)
    read_only(pip_world.repository)
    done = fetch("--verify")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 weight files in place, 0 of them new")


def test_a_file_that_was_changed_in_a_folder_that_may_not_be_written_is_no_success(fetch: Fetch, pip_world) -> None:
    assert fetch().returncode == 0
    placed = pip_world.repository / PLACE
    placed.chmod(0o644)
    placed.write_bytes(placed.read_bytes()[::-1])
    read_only(pip_world.repository)
    done = fetch("--verify")
    assert done.returncode == 1
    assert "cannot be written: Permission denied" in done.stderr
