"""What is recorded of programs is true of those that are at hand, and each record says where it is from."""

import os
import re
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest

from zooserve_cli.stack.env_file import read_env
from zooserve_cli.stack.recorded import recorded_programs

ROOT = Path(__file__).parents[3]
TAGS = {
    "tritonserver": "TRITON_TAG",
    "vllm": "VLLM_TAG",
    "qdrant": "QDRANT_TAG",
    "prometheus": "PROMETHEUS_TAG",
    "grafana": "GRAFANA_TAG",
    "tempo": "TEMPO_TAG",
    "otelcol-contrib": "COLLECTOR_TAG",
}
TAKEN_AWAY_BY_PROMETHEUS_3 = {
    "--help-long",
    "--help-man",
    "--storage.tsdb.retention",
    "--storage.tsdb.use-lockfile",
    "--storage.agent.use-lockfile",
    "--web.local-assets",
}
"""Of 2.42's; the last two groups are Debian's own, or were replaced by their opposite."""


def test_every_program_of_the_stack_is_recorded_at_the_tag_that_is_pinned() -> None:
    env = read_env(ROOT / ".env.example")
    assert env is not None
    programs = recorded_programs()
    assert set(programs) == set(TAGS)
    for name, variable in TAGS.items():
        tag, release = env.values[variable], programs[name].release
        assert tag == release or tag.startswith(f"{release}."), name
        assert programs[name].source
        assert programs[name].renew


def flags_of(text: str) -> set[str]:
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z][\w.-]*\w)", text, re.MULTILINE))


def test_triton_2_51_has_the_flags_that_are_recorded_and_three_are_newer() -> None:
    site = Path(str(distribution("nvidia-pytriton").locate_file("")))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs")}
    command = [str(site / "pytriton" / "tritonserver" / "bin" / "tritonserver"), "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    real = set(re.findall(r"^  (--[a-z][a-z0-9-]*)", done.stdout + done.stderr, re.MULTILINE))
    assert len(real) > 80
    newer = {"--grpc-infer-thread-count", "--grpc-max-response-pool-size", "--http-max-input-size"}
    assert set(recorded_programs()["tritonserver"].flags or ()) == real | newer


@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
def test_prometheus_2_42_has_no_flag_that_is_not_recorded_but_those_that_3_took_away() -> None:
    done = subprocess.run(["prometheus", "--help"], capture_output=True, text=True, check=False)
    real = flags_of(done.stdout + done.stderr)
    assert len(real) > 35
    assert real - set(recorded_programs()["prometheus"].flags or ()) <= TAKEN_AWAY_BY_PROMETHEUS_3
