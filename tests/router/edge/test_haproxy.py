import json
import subprocess
import sys
from pathlib import Path

import pytest

from zooserve_router.haproxy import error_answer, hardened, in_flight, install

# The lines of Ray 2.60's generated configuration that the rules are about.
GENERATED = """global
    stats socket /run/x/admin.sock mode 666 level admin expose-fd listeners
    tune.bufsize 16384
defaults
    option abortonclose
    option splice-request
    option splice-response
    errorfile 502 /run/x/500.http
    errorfile 503 /run/x/500.http
    errorfile 504 /run/x/500.http
frontend prometheus
    bind :9101
frontend http_frontend
    bind *:8000
backend http-zooserve
    server SERVE_REPLICA_zooserve-router-abc 127.0.0.1:30000 check observe layer4 error-limit 3 on-error mark-down
    # Fallback to head node's Serve proxy when no ingress replicas are available
    server SERVE_PROXY_ACTOR-fallback-0f 127.0.0.1:8500 check backup
backend default_backend
    http-request return status 404 content-type text/plain lf-string "Path \\'%[path]\\' not found."
listen stats
  bind *:8404
"""


@pytest.fixture
def closed() -> str:
    return hardened(GENERATED, Path("/run/x"))


def test_exporter_and_statistics_listen_on_loopback_only(closed: str) -> None:
    assert "    bind 127.0.0.1:9101\n" in closed
    assert "  bind 127.0.0.1:8404\n" in closed


def test_the_exporter_alone_may_listen_elsewhere() -> None:
    opened = hardened(GENERATED, Path("/run/x"), "0.0.0.0")
    assert "    bind 0.0.0.0:9101\n" in opened
    assert "  bind 127.0.0.1:8404\n" in opened
    assert hardened(opened, Path("/run/x"), "0.0.0.0") == opened


def test_the_public_address_stays_as_it_was_asked_for(closed: str) -> None:
    """Ray writes `*` for 0.0.0.0, which is what a container's router is told to listen on."""
    assert "frontend http_frontend\n    bind *:8000\n" in closed


def test_the_admin_socket_is_its_owners_alone(closed: str) -> None:
    assert "admin.sock mode 600 level admin" in closed
    assert "666" not in closed


def test_every_error_of_haproxy_itself_is_ours(closed: str) -> None:
    assert closed.count('"/run/x/503.http"') == 3
    assert closed.count('    errorfile 408 "/run/x/408.http"\n') == 1
    assert "500.http" not in closed


def test_two_hundred_lines_of_headers_are_no_bad_request(closed: str) -> None:
    assert "    tune.bufsize 16384\n    tune.http.maxhdr 512\n" in closed


def test_an_app_that_is_not_deployed_yet_is_unavailable_not_missing(closed: str) -> None:
    assert "backend default_backend\n    http-request deny deny_status 503\n" in closed


def test_the_python_proxy_is_no_last_resort(closed: str) -> None:
    assert "SERVE_PROXY_ACTOR" not in closed
    assert "SERVE_REPLICA_zooserve-router-abc 127.0.0.1:30000" in closed


def test_a_hang_up_is_noticed_since_nothing_is_spliced(closed: str) -> None:
    assert "splice" not in closed
    assert "option abortonclose" in closed


def test_half_a_request_does_not_hold_its_connection_for_an_hour(closed: str) -> None:
    assert closed.count("    timeout http-request 30s\n") == 1


def test_closing_twice_changes_nothing_more(closed: str) -> None:
    assert hardened(closed, Path("/run/x")) == closed


def test_ray_still_writes_the_lines_that_the_rules_look_for() -> None:
    templates = Path(str(__import__("ray").__file__)).parent / "serve/_private/haproxy_templates.py"
    text = templates.read_text()
    assert "stats socket {{ config.socket_path }} mode 666 level admin" in text
    assert "bind :{{ config.metrics_port }}" in text
    assert "bind *:{{ config.stats_port }}" in text
    assert text.count("errorfile 50") == 3
    assert "    tune.bufsize {{" in text
    assert "http-request return status 404 content-type text/plain" in text
    assert "server {{ backend.fallback_server.name }}" in text


@pytest.mark.parametrize(("status", "code"), [(408, "request_timeout"), (503, "backend_unavailable")])
def test_an_answer_of_haproxy_itself_is_json_of_the_stated_length(status: int, code: str) -> None:
    head, _, body = error_answer(status).partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert f"Content-Length: {len(body.encode())}" in head
    parsed = json.loads(body)
    assert parsed["error"]["code"] == code
    assert parsed["message"] == parsed["error"]["message"]


def test_the_launcher_closes_the_file_and_becomes_haproxy(tmp_path: Path) -> None:
    launcher = install(tmp_path / "with space")
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(
        "global\n    maxconn 10\ndefaults\n    mode http\n    timeout client 1s\n    timeout server 1s\n"
        "    timeout connect 1s\n    errorfile 502 /nowhere/500.http\nfrontend prometheus\n    bind :1\n"
    )
    done = subprocess.run(
        [launcher, "-c", "-f", configuration], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "bind 127.0.0.1:1" in configuration.read_text()
    assert sys.executable in launcher.read_text()


def test_only_what_replicas_work_on_counts_as_in_flight() -> None:
    statistics = (
        "# pxname,svname,qcur,qmax,scur,smax\n"
        "http_frontend,FRONTEND,,,7,9\n"
        "http-zooserve,SERVE_REPLICA_a,0,0,2,3\n"
        "http-zooserve,SERVE_REPLICA_b,0,0,1,3\n"
        "http-zooserve,BACKEND,0,0,3,6\n"
        "default_backend,BACKEND,0,0,0,0\n"
        "stats,BACKEND,0,0,1,1\n"
    )
    assert in_flight(statistics) == 3
    assert in_flight("# pxname,svname,qcur,qmax,scur,smax\n\n") == 0
