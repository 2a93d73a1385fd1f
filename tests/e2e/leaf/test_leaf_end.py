"""The end of a leaf's server, with streams running: nothing of it stays."""

import asyncio
from collections.abc import Callable
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.e2e


async def streams(leaf: Any, count: int) -> list[asyncio.Task[Any]]:
    """That many running streams, each past its first token."""
    asked = {"streaming": True, "sampling_param_max_tokens": 900}

    async def run(position: int, begun: asyncio.Event) -> None:
        async for _ in leaf.stream(text_input=leaf.prompt(f"Write a long story about {position} dragons."), **asked):
            begun.set()

    begun = [asyncio.Event() for _ in range(count)]
    running = [asyncio.create_task(run(position, event)) for position, event in enumerate(begun)]
    await asyncio.gather(*(event.wait() for event in begun))
    return running


def processes_of(leaf: Any) -> list[psutil.Process]:
    server = psutil.Process(leaf.server.pid)
    return [server, *server.children(recursive=True)]


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_no_process_outlives_a_server_that_ends_while_it_streams(
    start_leaf: Callable[[str], Any], end: str
) -> None:
    leaf = await asyncio.to_thread(start_leaf, f"ending-by-{end}")
    running = await streams(leaf, 4)
    processes = processes_of(leaf)
    assert len(processes) > 1

    if end == "stop":
        await asyncio.to_thread(leaf.server.stop, 2)
    else:
        processes[0].kill()

    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 20)
    assert alive == []
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    assert all(isinstance(outcome, Exception) for outcome in outcomes)


async def test_an_idle_server_ends_by_itself_with_its_stub(start_leaf: Callable[[str], Any]) -> None:
    leaf = await asyncio.to_thread(start_leaf, "idle")
    processes = processes_of(leaf)

    processes[0].terminate()

    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 20)
    assert alive == []
    assert leaf.server.exit_code == 0
