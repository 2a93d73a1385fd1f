"""Ten times the clients that the zoo keeps up with, through the whole platform."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

CLIENTS = 1280


def test_under_ten_times_the_load_queues_stay_below_their_bounds_and_nobody_hangs(platform: Any) -> None:
    script = platform.root / "benchmarks" / "backpressure.py"
    options = ["--state-dir", str(platform.folder.root), "--clients", str(CLIENTS), "--seconds", "5", "--json"]
    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, timeout=240, cwd=platform.root
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    answers = found["answers"]
    assert set(answers) == {"200", "429"}, found  # some refused, so that there was something to refuse; nobody lost
    assert found["unadvised"] == 0
    assert found["looks"] >= 10
    for model, bound in found["bounds"].items():
        assert found["most_waiting"].get(model, 0) < bound, found
    assert found["most_waiting"]["rag_query_tokenizer"] + found["most_waiting"]["embed_encoder"] > 0  # it was looked at
    assert found["afterwards"] == 200
