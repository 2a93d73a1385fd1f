"""Chats that are left and whose deadlines pass, in short: everything comes to rest, and every count adds up."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_sixty_chats_that_are_left_and_fifteen_deadlines_add_up(platform: Any) -> None:
    options = ["--count", "60", "--deadlines", "15", "--warm-up", "10", "--json"]
    run = subprocess.run(
        [sys.executable, platform.root / "benchmarks" / "chat_hangups.py", *options],
        env=platform.variables(),
        cwd=platform.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout)
    assert sum(result["ends"].values()) == 75
    assert result["ledger"]["issued"] > 0
    assert result["ledger"]["issued"] == sum(result["ledger"]["ended"].values())
    assert "failed" not in result["ledger"]["ended"], result
    assert not any("refused" in end or "broken" in end for end in result["ends"]), result["ends"]
