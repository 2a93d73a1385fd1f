"""What the graph tests share: the placed weights, the golden answers, and a way to run a graph held in memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def placed() -> Callable[[str], Path]:
    """The path of a placed weight; `make test` fetches them first."""

    def find(place: str) -> Path:
        path = ROOT / "model_repository" / place
        if not path.exists():
            pytest.fail(f"{place} is not there; run `zooserve fetch`")
        return path

    return find


@pytest.fixture
def golden() -> Callable[[str], dict[str, Any]]:
    """The golden answers of a task."""

    def load(task: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((ROOT / "ensembles" / "golden" / f"{task}.json").read_text("utf-8"))
        return document

    return load


@pytest.fixture
def run_graph() -> Callable[..., dict[str, Any]]:
    """Runs an ONNX model, given as bytes or a path, and answers its outputs by name."""
    import onnxruntime

    sessions: dict[Any, Any] = {}

    def run(model: bytes | Path, **feed: Any) -> dict[str, Any]:
        if model not in sessions:
            given = model if isinstance(model, bytes) else str(model)
            sessions[model] = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
        session = sessions[model]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, feed), strict=True))

    return run
