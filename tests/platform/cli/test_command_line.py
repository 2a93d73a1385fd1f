"""The command as a user meets it, where no platform runs."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

Zooserve = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def zooserve(tmp_path: Path) -> Zooserve:
    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        own = {"ZOOSERVE_STATE_DIR": str(tmp_path / "state"), "ZOOSERVE_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, "-m", "zooserve_cli", *arguments],
            env={**os.environ, **own, **environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_help_names_every_command(zooserve: Zooserve) -> None:
    told = zooserve("--help").stdout
    for command in (
        "up",
        "down",
        "status",
        "doctor",
        "fetch",
        "export",
        "new",
        "models",
        "logs",
        "trace",
        "demo",
        "route",
        "stack",
        "triton",
        "template",
    ):
        assert f" {command} " in told


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "set ZOOSERVE_ZOO__HTTP_PORT and ZOOSERVE_LEAF__GRPC_PORT "),
        ({"ZOOSERVE_ZOO__HTTP_PORT": "1"}, "set ZOOSERVE_LEAF__GRPC_PORT (and ZOOSERVE_LEAF__HOST), "),
        # Without a model of the leaf's no leaf is asked for, and without one of the zoo's no zoo.
        ({"ZOOSERVE_MODELS": "embed"}, "set ZOOSERVE_ZOO__HTTP_PORT (and ZOOSERVE_ZOO__HOST), "),
        ({"ZOOSERVE_MODELS": "chat"}, "set ZOOSERVE_LEAF__GRPC_PORT (and ZOOSERVE_LEAF__HOST), "),
        ({"ZOOSERVE_CATALOGUE": "platform/deploy/catalogues/vllm.yaml"}, "set ZOOSERVE_ZOO__HTTP_PORT (and"),
    ],
)
def test_the_router_alone_asks_where_its_tritons_are(zooserve: Zooserve, given: dict[str, str], named: str) -> None:
    done = zooserve("route", **given)
    assert done.returncode == 1
    assert named in done.stderr


def test_a_triton_alone_names_the_port_that_somebody_has(zooserve: Zooserve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = zooserve("triton", "leaf", ZOOSERVE_LEAF__GRPC_PORT=port)
    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1 is taken by" in done.stderr
    assert "ZOOSERVE_LEAF__GRPC_PORT" in done.stderr


def test_the_router_alone_refuses_headers_that_cannot_be_read_without_telling_them(zooserve: Zooserve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # whatever else goes well, no router starts
        done = zooserve(
            "route",
            ZOOSERVE_HOST="127.0.0.1",
            ZOOSERVE_PORT=str(taken.getsockname()[1]),
            ZOOSERVE_ZOO__HTTP_PORT="1",
            ZOOSERVE_LEAF__GRPC_PORT="1",
            ZOOSERVE_TRACING__ENDPOINT="http://127.0.0.1:1",
            OTEL_EXPORTER_OTLP_HEADERS="hunter2",
        )
    assert done.returncode == 1
    assert "OTEL_EXPORTER_OTLP_HEADERS cannot be used" in done.stderr
    assert "hunter2" not in done.stderr


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from zooserve_cli.main import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"ray", "torch", "onnx", "onnxruntime", "tokenizers", "numpy", "xllamacpp", "tritonclient"}
    assert not loaded & {"fastapi", "httpx", "prometheus_client", "qdrant_client", "psutil", "ruamel"}


def test_down_without_a_platform_is_no_error_and_makes_no_folder(zooserve: Zooserve, tmp_path: Path) -> None:
    done = zooserve("down")
    assert done.returncode == 0
    assert "Nothing runs" in done.stdout
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("arguments", [["status"], ["status", "--json"]])
def test_status_without_a_platform_is_one_line_and_exit_code_1(zooserve: Zooserve, arguments: list[str]) -> None:
    done = zooserve(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "zooserve up" in done.stderr


def test_wrong_usage_is_exit_code_2(zooserve: Zooserve) -> None:
    assert zooserve("up", "--sideways").returncode == 2
    assert zooserve("logs", "nobody").returncode == 2


def test_models_without_a_platform_come_from_the_catalogue(zooserve: Zooserve) -> None:
    models = json.loads(zooserve("models", "--json").stdout)
    assert {"embed", "chat"} <= {model["name"] for model in models}
    assert all(model["ready"] is None for model in models)


def test_models_says_which_are_enabled(zooserve: Zooserve) -> None:
    models = json.loads(zooserve("models", "--json", ZOOSERVE_MODELS="chat,embed").stdout)
    assert {model["name"] for model in models if model["enabled"]} == {"chat", "embed"}
    by_default = json.loads(zooserve("models", "--json").stdout)
    assert all(model["enabled"] is not model["optional"] for model in by_default)


@pytest.mark.parametrize("command", [["fetch", "--models=embde"], ["up", "--models=embde"]])
def test_a_model_that_the_catalogue_does_not_have_cannot_be_enabled(zooserve: Zooserve, command: list[str]) -> None:
    done = zooserve(*command)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "ZOOSERVE_MODELS names 'embde', which the catalogue does not have. Did you mean embed"
    )


def test_a_setting_that_cannot_be_used_is_named(zooserve: Zooserve) -> None:
    done = zooserve("models", ZOOSERVE_PORT="eighty")
    assert done.returncode == 1
    assert "ZOOSERVE_PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_nested_setting_that_cannot_be_used_is_named(zooserve: Zooserve) -> None:
    done = zooserve("models", ZOOSERVE_ZOO__HTTP_PORT="0")
    assert "ZOOSERVE_ZOO__HTTP_PORT" in done.stderr


def test_a_group_of_settings_that_is_no_json_is_named(zooserve: Zooserve) -> None:
    done = zooserve("status", ZOOSERVE_TRACING="{bad")
    assert done.returncode == 1
    assert 'must be JSON (error parsing value for field "tracing"' in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_catalogue_is_one_line(zooserve: Zooserve, tmp_path: Path) -> None:
    done = zooserve("models", ZOOSERVE_CATALOGUE=str(tmp_path / "none.yaml"))
    assert done.returncode == 1
    assert "none.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_folder_that_cannot_be_made_is_one_line(zooserve: Zooserve, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = zooserve("up", ZOOSERVE_STATE_DIR=str(tmp_path / "file" / "state"))
    assert done.returncode == 1
    assert "ZOOSERVE_STATE_DIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_tells_what_is_missing_and_how_to_mend_it(zooserve: Zooserve, tmp_path: Path) -> None:
    done = zooserve("doctor", "--json", ZOOSERVE_REPOSITORY=str(tmp_path))
    assert done.returncode == 1
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert not checks["weights"]["ok"]
    assert "zooserve fetch" in checks["weights"]["mend"]
    assert checks["Python"]["ok"]
    assert checks["tritonserver"]["ok"]
    assert checks["shared libpython"]["ok"]


def test_doctor_finds_a_broken_catalogue(zooserve: Zooserve, tmp_path: Path) -> None:
    broken = tmp_path / "zoo.yaml"
    broken.write_text("models: 3\n")
    done = zooserve("doctor", "--json", ZOOSERVE_CATALOGUE=str(broken))
    assert done.returncode == 1
    faults = [check for check in json.loads(done.stdout) if not check["ok"]]
    assert [check["name"] for check in faults] == ["catalogue"]
    assert f"{broken}:1:" in faults[0]["mend"]


def test_logs_prints_the_end(zooserve: Zooserve, tmp_path: Path) -> None:
    logs = tmp_path / "state" / "logs"
    logs.mkdir(parents=True)
    (logs / "zoo.log").write_text("".join(f"line {number}\n" for number in range(100)))
    assert zooserve("logs", "zoo", "-n", "2").stdout == "line 98\nline 99\n"


def test_logs_prints_the_access_log_and_lists_it(zooserve: Zooserve, tmp_path: Path) -> None:
    logs = tmp_path / "state" / "logs"
    logs.mkdir(parents=True)
    (logs / "access.jsonl").write_text('{"number": 1}\n{"number": 2}\n')
    assert zooserve("logs", "access", "-n", "1").stdout == '{"number": 2}\n'
    assert "(there are: access)" in zooserve("logs", "nothing").stderr.replace("\n", " ").replace("  ", " ")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "access.jsonl").write_text('{"number": 3}\n')
    assert zooserve("logs", "access", ZOOSERVE_ACCESS_LOG__FOLDER=str(elsewhere)).stdout == '{"number": 3}\n'


def test_logs_follows_what_is_added(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    file = logs / "zoo.log"
    file.write_text("old\n")
    follower = subprocess.Popen(
        [sys.executable, "-m", "zooserve_cli", "logs", "zoo", "-f"],
        env={**os.environ, "ZOOSERVE_STATE_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "old\n"
        with file.open("a") as log:
            log.write("new\n")
        assert follower.stdout.readline() == "new\n"
        file.replace(logs / "zoo.log.1")  # as a server does with a long log before it starts
        file.write_text("after\n")
        assert follower.stdout.readline() == "after\n"
    finally:
        follower.kill()
        follower.communicate()
