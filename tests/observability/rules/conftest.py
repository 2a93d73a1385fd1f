"""promtool, which Debian's package `prometheus` brings, and the committed files it is asked about."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

PROMETHEUS = Path(__file__).parents[3] / "observability" / "prometheus"


@pytest.fixture
def prometheus() -> Path:
    return PROMETHEUS


@pytest.fixture(scope="session")
def loaded() -> Callable[[Path], dict]:
    return cache(lambda file: YAML(typ="safe").load(file.read_text()))


@pytest.fixture
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool: apt-get install --no-install-recommends prometheus")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["promtool", *map(str, arguments)],
            env={**os.environ, "GOGC": "400"},  # a short run: less collecting, a quarter less time
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    return run
