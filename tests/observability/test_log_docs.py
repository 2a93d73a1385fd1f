"""docs/logs.md says what the code says."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from zooserve.settings import AccessLogSettings
from zooserve_observability.access_log import FIELDS

PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text(encoding="utf-8")
JQ = [line.removeprefix("$ ") for line in PAGE.splitlines() if line.startswith("$ jq ")]
LINES = [
    {"time": "2026-11-30T06:34:22.695Z", "request_id": "req_1", "key_id": "anonymous",
     "route": "/v1/embeddings", "status": 200, "outcome": "ok", "model": "embed", "input_tokens": 3, "duration_ms": 9.8,
     "phases_ms": {"zoo": 8.8}},
    {"time": "2026-11-30T06:34:23.695Z", "request_id": "req_2", "key_id": "0123456789ab",
     "route": "/v1/chat/completions", "outcome": "cancelled", "model": "chat",
     "input_tokens": 3, "output_tokens": 5,
     "duration_ms": 900.1, "phases_ms": {"prefill": 100.0, "decode": 700.0}},
    {"time": "2026-11-30T06:34:24.695Z", "request_id": "req_3", "key_id": "anonymous", "route": "unknown",
     "status": 404, "outcome": "RouteNotFound", "error": "route_not_found", "model": "unknown", "duration_ms": 0.1},
]  # fmt: skip
TOLD = ['"cancelled"', '"p95_ms": 900.1', '"tokens": 8', "900.1 req_2 decode"]
"""In the answer to each of them, in their order."""


def table(heading: str) -> list[str]:
    """The names in the first column of the table below this heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)


def test_the_page_names_every_field_in_its_order() -> None:
    assert tuple(table("Fields")) == FIELDS


def test_the_page_names_every_setting() -> None:
    own = {f"ZOOSERVE_ACCESS_LOG__{name.upper()}" for name in AccessLogSettings.model_fields if name != "stdout"}
    assert set(table("Settings")) == {*own, "ZOOSERVE_KEY_SALT", "ZOOSERVE_KEY_SALT_FILE"}


def test_the_line_on_the_page_is_one_of_ours() -> None:
    (line,) = re.findall(r"^\{.*\}$", PAGE, re.MULTILINE)
    assert [name for name in FIELDS if name in json.loads(line)] == list(json.loads(line))


@pytest.mark.parametrize(("told", "command"), list(zip(TOLD, JQ, strict=True)))
def test_the_examples_of_the_page_work(tmp_path: Path, told: str, command: str) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    (tmp_path / "access.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    done = subprocess.run(shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert told in done.stdout
