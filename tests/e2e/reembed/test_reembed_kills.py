"""A re-embedding that is killed again and again makes the collection of one that is not (benchmarks/reembed_kills)."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.e2e

KILLS = 3
TIMEOUT_S = 1500


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_three_kills_at_points_drawn_by_chance_change_nothing(platform) -> None:
    done = subprocess.run(
        [
            sys.executable, str(platform.root / "benchmarks" / "reembed_kills.py"), "--router", platform.url,
            "--kills", str(KILLS), "--chunks", "150", "--json",
        ],
        cwd=platform.root, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    said = json.loads(done.stdout)
    assert len(said["kills"]) == KILLS
    assert said["least_cosine"] >= 0.99999
    assert said["points"] + said["dead"] == said["chunks"]
    assert said["dead"]
