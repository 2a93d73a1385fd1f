"""The looks at an engine server: what leads to a restart, and what does not."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from zooserve.engine.watch import EngineWatch
from zooserve.settings import WatchSettings
from zooserve.triton.watch import Restart


class Slots:
    """What /slots says to each look."""

    def __init__(self) -> None:
        self.says: int | Exception = 200

    def handle(self, request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "http://engine:1/slots"
        assert request.headers["authorization"] == "Bearer k"
        if isinstance(self.says, Exception):
            raise self.says
        return httpx.Response(self.says)


@pytest.fixture
def slots() -> Slots:
    return Slots()


@pytest.fixture
def http(slots: Slots) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(slots.handle))


@pytest.fixture
def server() -> Any:
    return SimpleNamespace(pid=7, exit_code=None, address="engine:1", orders=SimpleNamespace(key="k"))


@pytest.fixture
def watch(server: Any) -> EngineWatch:
    return EngineWatch(server, WatchSettings(patience=3))


async def test_one_that_answers_is_left_alone(watch: EngineWatch, http: httpx.AsyncClient) -> None:
    assert await watch.look(http) == []


async def test_one_that_has_ended_is_started_again(watch: EngineWatch, http: httpx.AsyncClient, server: Any) -> None:
    server.pid, server.exit_code = None, -9
    assert await watch.look(http) == [Restart("it ended by itself (exit code -9)")]


@pytest.mark.parametrize(
    ("says", "cause"),
    [(503, "/slots answers 503"), (httpx.ReadTimeout("late"), "/slots does not answer (ReadTimeout)")],
)
async def test_one_that_is_silent_is_started_again_once_patience_is_over(
    watch: EngineWatch, http: httpx.AsyncClient, slots: Slots, says: Any, cause: str
) -> None:
    slots.says = says
    assert [await watch.look(http) for _ in range(3)] == [[], [], [Restart(cause)]]


async def test_an_answer_in_between_and_a_restart_begin_the_count_anew(
    watch: EngineWatch, http: httpx.AsyncClient, slots: Slots
) -> None:
    for between in (200, None):
        slots.says = 503
        assert [await watch.look(http) for _ in range(2)] == [[], []]
        if between is None:
            watch.forget()
        else:
            slots.says = between
            assert await watch.look(http) == []
    slots.says = 503
    assert await watch.look(http) == []
