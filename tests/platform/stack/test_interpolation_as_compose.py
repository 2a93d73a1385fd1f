"""Variables come out as the real Docker Compose puts them in: over the committed file, and over hard cases."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zooserve_cli.stack.env_file import parse_env
from zooserve_cli.stack.environment import told
from zooserve_cli.stack.interpolation import interpolated
from zooserve_cli.stack.reading import read_stack
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack

ROOT = Path(__file__).parents[3]
COMPOSE = Path(sys.executable).with_name("docker-compose")

COMMITTED = "docker-compose.yml"
OVERRIDES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "platform" / "deploy").glob("compose.*.yml"))

pytestmark = pytest.mark.skipif(not COMPOSE.exists(), reason="the real docker-compose is not installed")


def real(
    folder: Path, *profiles: str, files: Sequence[str] = ("docker-compose.yml",), env: str = ".env.example"
) -> Any:
    """What the real one makes of a file; a `$` of its answer is written `$$` there, too."""
    chosen = [word for profile in profiles for word in ("--profile", profile)]
    named = [word for file in files for word in ("-f", file)]
    command = [str(COMPOSE), *named, "--env-file", env, *chosen, "config", "--format", "json"]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.replace("$$", "$"))


def read(folder: Path, *profiles: str, files: Sequence[str] = (COMMITTED,), env: str = ".env.example") -> Stack:
    stack, found = read_stack([folder / file for file in files], folder / env, None)
    assert stack is not None, found
    return replace(stack, profiles=frozenset(profiles))


def words(parts: Any) -> list[str]:
    return [part.text for part in parts]


def assert_same(stack: Stack, service: Service, expected: Any) -> None:
    assert service.image == expected.get("image", "")
    assert words(service.command) == (expected.get("command") or [])
    assert words(service.entrypoint) == (expected.get("entrypoint") or [])
    assert told(stack, service) == {name: value or "" for name, value in expected.get("environment", {}).items()}
    check = expected.get("healthcheck", {})
    assert words(service.health_test) == ([] if check.get("disable") else check.get("test", []))
    ports = [(port.host, port.port, port.target) for port in service.published]
    assert ports == [(port.get("host_ip", ""), port["published"], port["target"]) for port in expected.get("ports", ())]
    assert {need.service: need.condition for need in service.needs if need.service in stack.services} == {
        name: need["condition"] for name, need in expected.get("depends_on", {}).items() if name in stack.services
    }
    assert {joined.network: set(joined.aliases) for joined in service.networks} == {
        name: set((joined or {}).get("aliases", ())) for name, joined in expected["networks"].items()
    }
    mounts = {mount.target: (mount.kind, mount.is_read_only) for mount in service.mounts}
    assert mounts == {
        mount["target"]: (mount["type"], mount.get("read_only", False)) for mount in expected.get("volumes", ())
    }
    assert {(grant.source, grant.target) for grant in service.secrets} == {
        (grant["source"], grant["target"] if grant["target"].startswith("/") else f"/run/secrets/{grant['target']}")
        for grant in expected.get("secrets", ())
    }


@pytest.mark.parametrize("profile", ["gpu", "cpu", "vllm", "shared-gpu"])
def test_the_committed_file_is_read_as_compose_reads_it(profile: str) -> None:
    expected = real(ROOT, profile)
    stack = read(ROOT, profile)
    assert set(stack.services) == set(expected["services"])
    for name, service in stack.services.items():
        assert_same(stack, service, expected["services"][name])


@pytest.mark.parametrize("override", OVERRIDES)
def test_an_override_is_laid_over_it_as_by_compose(override: str) -> None:
    files = (COMMITTED, override)
    expected, stack = real(ROOT, "gpu", files=files), read(ROOT, "gpu", files=files)
    assert set(stack.services) == set(expected["services"])
    for name, service in stack.services.items():
        assert_same(stack, service, expected["services"][name])


HARD = """
x-base: &base { image: "a:${TAG:-1}", environment: { A: "${SET}", B: base } }
services:
  merged:
    <<: *base
    environment: { B: "over $$ {x}" }
  base:
    image: base:1
    command: [one, "${SET}"]
    environment: { FROM_BASE: "1", BOTH: base }
    ports: ["80:80"]
    healthcheck: { test: [CMD, a] }
  child:
    extends: { service: base }
    command: two ${SET} 'th ree'
    environment: [BOTH=child, OWN=$SET]
    ports: ["127.0.0.1:81:81", { target: 82, published: "82" }]
    healthcheck: { test: curl $$HOME }
  cases:
    image: c:1
    environment:
      SET: ${SET}
      PLAIN: $SET-$SET.
      UNSET_DASH: ${UNSET-d}
      EMPTY_DASH: ${EMPTY-d}
      EMPTY_COLON: ${EMPTY:-d}
      NESTED: ${UNSET:-${EMPTY:-${SET}}}
      BRACES: ${UNSET:-{"a":"b"}}
      PLUS: ${SET:+yes}
      PLUS_EMPTY: ${EMPTY:+yes}
      PLUS_SET: ${EMPTY+yes}
      REQUIRED: ${SET:?say so}
      DOLLARS: $$SET $${SET} $$$SET
      COLONS: ${UNSET:-http://a:80/x?y=1}
      SPACES: "${UNSET:- two  words }"
      NUMBER: 007
      A_BOOL: true
      LONE: a $ b $1 $(c) $
      IN_DEFAULT: ${UNSET:-a$$b}
      QUOTED: ${QUOTED}
      SINGLE: ${SINGLE}
      COMMENTED: ${COMMENTED}
      HASH: ${HASH}
      EXPORTED: ${EXPORTED}
      CHAINED: ${CHAINED}
      LITERAL: ${LITERAL}
      MULTI: ${MULTI}
      ESCAPED: ${ESCAPED}
      SPACED: ${SPACED}
      YAMLISH: ${YAMLISH}
      BLOCK: |
        one ${SET}
        two $$SET
"""
VARIABLES = """# a comment
SET=value
EMPTY=
QUOTED="with # and 'quotes'"
SINGLE='$SET is literal \\n'
COMMENTED=before # after
HASH=a#b
export EXPORTED=yes
CHAINED=${SET}-${UNSET:-d}
LITERAL="$$SET"
MULTI="one
two"
ESCAPED="a\\tb\\"c\\\\d"
  SPACED  =   around
YAMLISH: colon
"""


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    (tmp_path / "docker-compose.yml").write_text(HARD)
    (tmp_path / ".env").write_text(VARIABLES)
    return tmp_path


@pytest.mark.parametrize("name", ["merged", "base", "child", "cases"])
def test_hard_cases_come_out_the_same(hard: Path, name: str) -> None:
    stack = read(hard, env=".env")
    assert_same(stack, stack.services[name], real(hard, env=".env")["services"][name])


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A", "${A:}", "${A!b}", "${A:-${B}"])
def test_what_compose_refuses_is_a_fault(text: str, tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text("services:\n  a:\n    image: " + json.dumps(f"a:{text}") + "\n")
    (tmp_path / ".env").write_text("")
    with pytest.raises(AssertionError):
        real(tmp_path, env=".env")
    assert interpolated(text, {}).faults


@pytest.mark.parametrize("line", ['A="open', "A='open", "no name", "B C=2", '"A"=1'])
def test_lines_that_compose_refuses_are_told(line: str, tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text("services: { a: { image: 'a:1' } }\n")
    (tmp_path / ".env").write_text(f"{line}\n")
    with pytest.raises(AssertionError):
        real(tmp_path, env=".env")
    assert parse_env(f"{line}\n", Path(".env")).unreadable


def test_the_real_one_is_there_where_the_tests_run() -> None:
    assert shutil.which(str(COMPOSE))
