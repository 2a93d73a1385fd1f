"""A platform whose state folder lies on a disk that is full: whoever asks does not notice."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from zooserve.processes.identity import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

TEXTS = ["What language is this?"]
FEW, MANY = {"model": "language", "input": TEXTS}, {"model": "language", "input": TEXTS * 64}


@pytest.fixture(scope="module")
def platform_on_a_small_disk(platforms_of_module: Callable[..., Any]) -> Iterator[Any]:
    """A platform of one model whose state folder is a file system of its own, full once it runs."""
    platform = platforms_of_module(ZOOSERVE_MODELS="language", ZOOSERVE_ROUTER__REPLICAS="1")
    folder = platform.folder.root
    mount = ["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", str(folder)]  # a start wants to see 2 GiB
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    try:
        platform.up()
        subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
        fill(folder / "ballast")
        yield platform
        (folder / "ballast").unlink()
        platform.down()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)


def replica(platform: Any) -> psutil.Process | None:
    processes = psutil.Process(platform.state.pid).children(recursive=True)
    return next((each for each in processes if "ray::ServeReplica" in command_of(each.pid)), None)


def classified(platform: Any, body: Any, **headers: str) -> int:
    return httpx.post(f"{platform.url}/v1/classify", json=body, headers=headers, timeout=60).status_code


def test_requests_of_every_kind_are_answered_and_what_is_lost_is_counted(platform_on_a_small_disk: Any) -> None:
    platform = platform_on_a_small_disk
    before = replica(platform)
    for headers in ({}, {"x-zooserve-class": "bulk"}):  # series that there were none of
        assert classified(platform, FEW, **headers) == classified(platform, MANY, **headers) == 200
    assert classified(platform, {"model": "nobody", "input": "a"}) == 404
    while True:
        page = httpx.get(f"{platform.url}/metrics", timeout=30).text
        lost = [
            line for line in page.splitlines() if line.startswith("zooserve_spans_dropped_total") and "disk" in line
        ]
        if any(float(line.split()[-1]) > 0 for line in lost):
            break
        time.sleep(0.2)  # between two looks; traces settle for a second
    assert replica(platform) == before
    assert platform.state.restarts == {}


def test_a_replica_that_is_killed_is_replaced_and_answers(platform_on_a_small_disk: Any) -> None:
    platform = platform_on_a_small_disk
    killed = replica(platform)
    assert killed is not None
    killed.send_signal(signal.SIGKILL)
    while (replica(platform) or killed) == killed:
        time.sleep(0.2)  # between two looks; Ray replaces it
    while classified(platform, FEW) != 200:
        time.sleep(0.2)  # until it has found the model ready
    assert classified(platform, MANY, **{"x-zooserve-class": "bulk"}) == 200
    assert httpx.get(f"{platform.url}/metrics", timeout=30).status_code == 200
