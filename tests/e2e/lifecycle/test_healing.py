"""What breaks in a running platform is mended by the supervisor, with its cause in the log and a count."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from zooserve.processes.identity import Process, command_of, descendants, process_table, send
from zooserve.processes.ports import reserved_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PATIENCE_S = 300
QUICK = {"ZOOSERVE_WATCH__INTERVAL_S": "1", "ZOOSERVE_WATCH__PROBE_TIMEOUT_S": "4", "ZOOSERVE_WATCH__PATIENCE": "2"}


@pytest.fixture(scope="module")
def patient(platforms_of_module: Callable[..., Any]) -> Iterator[Any]:
    """One platform that every test here breaks, and leaves mended."""
    platform = platforms_of_module(**QUICK)
    platform.up()
    return platform


def eventually(holds: Callable[[], bool], patient: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, patient.logs()
        time.sleep(0.2)


def embeds(patient: Any) -> bool:
    body = {"model": "embed", "input": "are you well?"}
    try:
        return httpx.post(f"{patient.url}/v1/embeddings", json=body, timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def chats(patient: Any) -> bool:
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    try:
        return httpx.post(f"{patient.url}/v1/chat/completions", json=body, timeout=30).status_code == 200
    except httpx.HTTPError:
        return False


def below(patient: Any, word: str) -> list[Process]:
    """The platform's processes with this word on their command line."""
    found = descendants([patient.state.pid], process_table())
    return [process for process in found if word in command_of(process.pid)]


def log_of(patient: Any) -> str:
    return patient.folder.log_file("supervisor").read_text()


def counted(patient: Any, series: str) -> float:
    for line in httpx.get(f"{patient.url}/metrics", timeout=10).text.splitlines():
        if line.startswith(series):
            return float(line.rpartition(" ")[2])
    return 0.0


def test_a_killed_stub_is_reloaded(patient: Any) -> None:
    (stub,) = below(patient, "embed_encoder_0_0")
    send(stub, signal.SIGKILL)
    eventually(lambda: patient.state.reloads.get("embed_encoder") == 1, patient)
    eventually(lambda: embeds(patient), patient)
    assert "reloading embed_encoder: 500" in log_of(patient)
    assert "Stub process 'embed_encoder_0_0' is not healthy" in log_of(patient)
    series = 'zooserve_model_reloads_total{server="zoo",triton_model="embed_encoder"}'
    assert counted(patient, series) == 1
    assert patient.state.restarts == {}


def test_a_killed_stub_of_the_leaf_is_reloaded(patient: Any) -> None:
    (stub,) = below(patient, "tensorrt_llm_0_0")
    send(stub, signal.SIGKILL)
    eventually(lambda: "tensorrt_llm" in patient.state.reloads or "leaf" in patient.state.restarts, patient)
    eventually(lambda: chats(patient), patient)


def test_a_killed_triton_is_restarted_on_the_same_ports(patient: Any) -> None:
    before = patient.zoo_http
    (triton,) = below(patient, "--http-port=" + before.rpartition(":")[2])
    stubs = below(patient, "zooserve-") and descendants([triton.pid], process_table())
    send(triton, signal.SIGKILL)
    eventually(lambda: patient.state.restarts.get("zoo") == 1, patient)
    eventually(lambda: embeds(patient), patient)
    assert patient.zoo_http == before
    assert "zoo: restarting: tritonserver ended by itself (signal 9)" in log_of(patient)
    assert not stubs & descendants([patient.state.pid], process_table())


def test_a_hung_triton_is_restarted(patient: Any) -> None:
    (triton,) = below(patient, "--http-port=" + patient.leaf_http.rpartition(":")[2])
    restarts = patient.state.restarts.get("leaf", 0)
    send(triton, signal.SIGSTOP)
    eventually(lambda: patient.state.restarts.get("leaf") == restarts + 1, patient)
    eventually(lambda: chats(patient), patient)
    assert "2 times in a row" in log_of(patient)


def test_a_dead_raylet_brings_the_router_up_anew(patient: Any) -> None:
    (raylet,) = below(patient, "/raylet ")
    send(raylet, signal.SIGKILL)
    eventually(lambda: patient.state.restarts.get("router", 0) >= 1, patient)
    eventually(lambda: embeds(patient) and chats(patient), patient)
    assert "router: restarting: " in log_of(patient)


def test_a_killed_router_leaves_none_of_its_processes(patient: Any) -> None:
    eventually(lambda: embeds(patient), patient)
    (router,) = (each for each in below(patient, "zooserve_router.serve") if parent_of(each) == patient.state.pid)
    left = descendants([router.pid], process_table())
    restarts = patient.state.restarts.get("router", 0)
    send(router, signal.SIGKILL)
    eventually(lambda: patient.state.restarts.get("router", 0) > restarts, patient)
    eventually(lambda: embeds(patient) and chats(patient), patient)
    assert not left & descendants([patient.state.pid], process_table())
    assert "router: restarting: it ended by itself (exit code -9)" in log_of(patient)


def parent_of(process: Process) -> int:
    return process_table()[process.pid]


def replicas(patient: Any) -> list[Process]:
    return below(patient, "ray::ServeReplica")


def test_a_dead_replica_is_replaced_by_ray_and_told_in_json_meanwhile(patient: Any) -> None:
    eventually(lambda: embeds(patient) and len(replicas(patient)) == 1, patient)
    (dead,) = replicas(patient)
    restarts = patient.state.restarts
    send(dead, signal.SIGKILL)
    answers: list[httpx.Response] = []

    def back() -> bool:
        try:
            answers.append(httpx.get(f"{patient.url}/v1/models", timeout=10))
        except httpx.HTTPError:
            return False
        return answers[-1].status_code == 200 and replicas(patient) not in ([], [dead])

    eventually(back, patient)
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} <= {503}
    assert all(answer.json()["error"]["code"] == "backend_unavailable" for answer in refused)
    assert patient.state.restarts == restarts


def test_a_second_up_refuses_and_names_the_first(patient: Any) -> None:
    for arguments in (["up"], ["up", "--detach"]):
        second = patient.zooserve(*arguments)
        assert second.returncode == 1
        assert f"process {patient.state.pid}" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_taken_port_is_told_with_its_owner(platform_factory: Callable[..., Any]) -> None:
    port = reserved_ports(1)[0]
    owner = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)])
    try:
        platform = platform_factory(ZOOSERVE_ZOO__HTTP_PORT=str(port))
        eventually(lambda: answers(port), platform)
        done = platform.zooserve("up")
        assert done.returncode == 1
        assert f"Port {port}" in done.stderr
        assert f"process {owner.pid}" in done.stderr
        assert "http.server" in done.stderr
        assert "ZOOSERVE_ZOO__HTTP_PORT" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        owner.kill()
        owner.wait()


def answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}", timeout=1)
    except httpx.ConnectError:
        return False
    return True
