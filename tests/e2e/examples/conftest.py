"""Where the examples are, and a Python that has what they ask for and the platform has not."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def frameworks_python() -> Path:
    """The interpreter of `make integrations`: LangChain, LlamaIndex, Jupyter and the light SDK's own needs."""
    python = ROOT / ".venv-integrations/bin/python"
    if not python.exists():
        missing = "LangChain, LlamaIndex and Jupyter are not installed: run `make integrations`."
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return python


@pytest.fixture(scope="module")
def environment(platform) -> dict[str, str]:
    """The variables of a program that uses the platform through the SDK of this checkout."""
    return {**os.environ, "ZOOSERVE_URL": platform.url, "PYTHONPATH": str(ROOT / "platform")}
