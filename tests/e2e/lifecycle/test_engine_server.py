"""The platform's own engine: started where a model runs on it, watched, and stopped with everything else."""

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from zooserve.processes.identity import find
from zooserve.processes.records import ProcessRecords

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def engine_pid(platform: Any) -> int:
    records = ProcessRecords(platform.folder.records_file).alive()
    return next((record.pid for record in records if record.role == "engine"), 0)


def until(holds: Callable[[], bool]) -> None:
    """Look again and again; the test's own timeout bounds it."""
    while not holds():
        time.sleep(0.1)


def answers(platform: Any) -> bool:
    body = {"model": "chat_json", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    return httpx.post(f"{platform.url}/v1/chat/completions", json=body, timeout=60).status_code == 200


def test_an_engine_is_started_watched_and_stopped_with_the_platform(platform_factory: Callable[..., Any]) -> None:
    platform = platform_factory(ZOOSERVE_MODELS="chat_json", ZOOSERVE_WATCH__INTERVAL_S="1")
    told = platform.up()
    assert "engine: model loaded" in [step["name"] for step in told["steps"]]
    until(lambda: answers(platform))
    shown = json.loads(platform.zooserve("status", "--json").stdout)
    assert [server["address"] for server in shown["servers"] if server["name"] == "engine"] == [
        f"http://{platform.state.engine_http}"
    ]
    assert httpx.post(f"http://{platform.state.engine_http}/v1/chat/completions", json={}).status_code == 401

    key = json.loads((platform.folder.run / "engine.json").read_text())["key"]
    written = [platform.logs(), json.dumps(told), (platform.folder.run / "platform.json").read_text()]
    assert not any(key in text for text in written)

    first = engine_pid(platform)
    os.kill(first, signal.SIGKILL)
    until(lambda: platform.state.restarts.get("engine") == 1 and engine_pid(platform) not in (0, first))
    until(lambda: answers(platform))

    second = engine_pid(platform)
    assert platform.down().returncode == 0
    assert find(second) is None
    assert not (platform.folder.run / "engine.json").exists()
