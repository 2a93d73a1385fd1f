"""`zooserve stack check`: the committed stack has no fault, and the command tells faults as it should."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from zooserve_cli.main import app
from zooserve_cli.stack import telemetry
from zooserve_cli.stack.inspection import ALL_RULES, GROUPS, check_stack

ROOT = Path(__file__).parents[3]
PROFILES = ("gpu", "cpu", "vllm", "shared-gpu")
SECRETS = ("key_salt", "hf_token", "qdrant_api_key", "grafana_admin_password")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["stack", "check", *arguments])


@pytest.fixture
def with_secrets(copied: Any) -> Any:
    """A stack that is set up: its own .env, and every secret's file."""
    shutil.copy(copied.root / ".env.example", copied.root / ".env")
    (copied.root / "secrets").mkdir()
    for name in SECRETS:
        (copied.root / "secrets" / name).write_text("a long random text\n")
    return copied


@pytest.mark.parametrize("profile", PROFILES)
def test_the_committed_stack_has_no_fault(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    example = Path(".env.example")
    report = check_stack(Path("docker-compose.yml"), example, example, [profile])
    assert [str(finding) for finding in report.findings if finding.rule != "secret-absent"] == []
    assert {str(finding.severity) for finding in report.findings} <= {"note"}


@pytest.mark.parametrize("override", ["compose.loopback.yml", "compose.plan.yml"])
def test_an_override_of_ours_has_no_fault(override: str, with_secrets: Any) -> None:
    done = run("docker-compose.yml", f"platform/deploy/{override}")
    assert done.stdout.endswith(", with .env: no faults\n"), done.stdout
    assert done.stdout.count("\n") == 1


def test_a_fault_of_an_override_is_told_in_its_own_file(with_secrets: Any) -> None:
    loopback = "platform/deploy/compose.loopback.yml"
    with_secrets.change(loopback, "127.0.0.1:6333:6333", "127.0.0.1:6333:6433")
    done = run("docker-compose.yml", loopback)
    assert done.exit_code == 1
    assert f"{loopback}:{with_secrets.line_of(loopback, '6333:6433')}: [published-port] qdrant listens " in done.stdout


def test_a_stack_that_is_set_up_has_nothing_to_tell(with_secrets: Any) -> None:
    done = run()
    assert done.exit_code == 0
    assert done.stdout == "15 services, profile gpu, with .env: no faults\n"


def test_of_the_example_every_profile_is_looked_at_and_of_ones_own_env_the_chosen_ones(with_secrets: Any) -> None:
    assert set(json.loads(run("--json", "--env-file", ".env.example").stdout)["profiles"]) == set(PROFILES)
    with_secrets.change(".env", "COMPOSE_PROFILES=gpu", "COMPOSE_PROFILES=shared-gpu")
    with_secrets.change(".env", "LEAF_GPU=1", "LEAF_GPU=0")  # a box with one card
    done = run()
    assert done.exit_code == 0
    assert done.stdout == "15 services, profile shared-gpu, with .env: no faults\n"
    assert "[gpu-taken]" in run("--profile", "gpu").stdout


def test_named_profiles_are_looked_at_together(with_secrets: Any) -> None:
    both = run("--profile", "gpu", "--profile", "shared-gpu")
    assert both.exit_code == 1
    assert "[port-taken]" not in both.stdout
    assert "[gpu-taken]" in both.stdout
    unknown = run("--profile", "gpus")
    assert unknown.exit_code == 1
    assert "docker-compose.yml: [unknown-profile] no service has the profile gpus; there are: gpu, " in unknown.stdout


def test_json_holds_the_same_as_the_lines(with_secrets: Any) -> None:
    with_secrets.change("docker-compose.yml", "TEMPO_URL: http://tempo:3200", "TEMPO_URL: http://tempo:3300")
    told = run()
    assert told.exit_code == 1
    line = with_secrets.line_of("docker-compose.yml", "TEMPO_URL:")
    assert told.stdout.startswith(f"docker-compose.yml:{line}: [unheard-port] tempo does not listen on 3300, but on ")
    (finding,) = json.loads(run("--json").stdout)["findings"]
    assert (finding["line"], finding["rule"], finding["severity"]) == (line, "unheard-port", "error")


def test_a_misspelt_variable_of_ones_own_is_told_with_the_nearest(with_secrets: Any) -> None:
    with_secrets.change(".env", "QDRANT_MEMORY=8g", "QDRANT_MEMROY=8g")
    done = run()
    assert done.exit_code == 1
    line = with_secrets.line_of(".env", "QDRANT_MEMROY")
    assert f".env:{line}: [variable-unknown] nothing reads QDRANT_MEMROY. Did you mean QDRANT_MEMORY?" in done.stdout
    assert "[variable-missing] set QDRANT_MEMORY in .env" in done.stdout


def test_a_secret_whose_file_is_not_there_is_an_error_once_the_stack_is_set_up(with_secrets: Any) -> None:
    (with_secrets.root / "secrets" / "key_salt").unlink()
    done = run()
    assert done.exit_code == 1
    line = with_secrets.line_of("docker-compose.yml", "  key_salt: {")
    assert f"docker-compose.yml:{line}: [secret-absent] make secrets/key_salt" in done.stdout


def test_a_secret_that_is_empty_is_an_error_unless_it_may_be(with_secrets: Any) -> None:
    (with_secrets.root / "secrets" / "hf_token").write_text("")
    assert run().exit_code == 0
    (with_secrets.root / "secrets" / "qdrant_api_key").write_text("\n")
    done = run()
    assert done.exit_code == 1
    assert "[secret-empty] secrets/qdrant_api_key is empty" in done.stdout


def test_a_secret_that_git_tracks_is_an_error(with_secrets: Any) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(with_secrets.root), *words], check=True, capture_output=True)

    git("init", "-q")
    assert run().exit_code == 0
    git("add", "-f", "secrets/key_salt")
    done = run()
    assert done.exit_code == 1
    assert "[secret-tracked] secrets/key_salt is the secret key_salt, and git tracks it" in done.stdout


def test_files_that_are_not_there_are_a_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run().exit_code == 2
    (tmp_path / "docker-compose.yml").write_text("services: { a: { image: 'a:1' } }\n")
    assert run("--env-file", "nowhere").exit_code == 2


def test_a_strangers_file_needs_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compose.yaml").write_text(
        "services:\n"
        "  web: # it writes its cache into its image's folders\n"
        "    image: nginx:1.29\n"
        '    ports: ["8080:80"]\n'
        "    environment: { API: 'http://api:${API_PORT:-9000}' }\n"
        "  api:\n"
        "    image: registry.example/api@sha256:" + "0" * 64 + "\n"
        "    read_only: true\n"
        "    expose: [9000]\n"
    )
    done = run("compose.yaml")
    assert done.stdout == "2 services, with no env file: no faults\n"
    assert done.exit_code == 0


STRANGERS = """
services:
  app:
    build: { context: ., args: { EXTRA: "1" } }
    read_only: true
    ports: ["8080:80/tcp", "9000-9010:9000-9010", "[::1]:81:81", "53:53/udp"]
    environment:
      - DATABASE_URL=postgresql://app:secret@db:5432/app
      - PUBLIC_URL=http://localhost:8080
      - OWNER=app:1000
      - LAN=http://fileserver:8000/x
      - HOME_PAGE=https://www.example.org
    extra_hosts: ["fileserver:10.0.0.7"]
    depends_on: { db: { condition: service_healthy } }
    command: sh -c "exec ./serve --port $$PORT"
  db:
    image: postgres:16.4
    read_only: true
    environment: { POSTGRES_PASSWORD_FILE: /run/secrets/password }
    secrets: [password]
    healthcheck: { test: ["CMD-SHELL", "pg_isready -U app || exit 1"], interval: 1m30s, retries: 5 }
    volumes: ["data:/var/lib/postgresql/data", { type: tmpfs, target: /tmp }]
  board:
    image: grafana/grafana:11.6.1
    read_only: true
    ports: ["3300:3000"]
    volumes: ["boards:/var/lib/grafana"]
    environment: { GF_SERVER_ROOT_URL: "http://localhost:3300/" }
volumes: { data: { driver: local }, boards: {} }
secrets: { password: { environment: DB_PASSWORD } }
"""
CONTAINER_FILE = """ARG BASE=3.12-slim
FROM --platform=$BUILDPLATFORM python:${BASE} AS build
FROM gcr.io/distroless/${FLAVOUR:-python3-debian12}:nonroot
ARG EXTRA
COPY --from=build /app /app
"""


def test_what_strangers_write_is_not_taken_for_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compose.yaml").write_text(STRANGERS)
    (tmp_path / "Dockerfile").write_text(CONTAINER_FILE)
    (tmp_path / ".env").write_text("DB_PASSWORD='not here'\n")
    done = run("compose.yaml")
    assert done.stdout == "3 services, with .env: no faults\n"


def test_a_health_check_that_asks_for_help_ends_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """argparse would print it and end the process, and the check would pass."""
    monkeypatch.chdir(tmp_path)
    lines = (
        "services:",
        "  a:",
        "    image: alpine:3.20",
        "    networks: [nobody]",
        "    healthcheck: { test: [CMD, python3, -m, zooserve.health, zoo, --help] }",
    )
    (tmp_path / "compose.yaml").write_text("\n".join(lines))
    done = run("compose.yaml")
    assert "[undeclared]" in done.stdout
    assert "usage:" not in done.stdout


def test_it_runs_as_a_command_of_its_own() -> None:
    command = [sys.executable, "-m", "zooserve_cli", "stack", "check", "--env-file", ".env.example", "--profile", "cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_documentation_lists_every_rule_as_it_is() -> None:
    page = (ROOT / "docs" / "stack-check.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    rules = list(dict.fromkeys(ALL_RULES))
    assert rows == [f"| `{rule.name}` | {rule.severity} | {rule.summary} |" for rule in rules]
    assert [line[4:] for line in page.splitlines() if line.startswith("### ")] == [title for title, _, _ in GROUPS]


def test_no_two_rules_have_the_same_name() -> None:
    names = [rule.name for rule in dict.fromkeys(ALL_RULES)]
    assert len(set(names)) == len(names)


def test_telemetry_is_looked_at_by_its_own_modules() -> None:
    assert {rule.name for rule in telemetry.RULES} >= {"collector-unknown-component", "tempo-storage", "config-value"}
