"""The order that a replica takes beside requests."""

from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI

from zooserve_router.serve import Replica


async def ordered(**state: Any) -> None:
    replica = Replica()
    replica.app = FastAPI(openapi_url=None)
    for name, value in state.items():
        setattr(replica.app.state, name, value)
    await replica.end_chats()


async def test_the_order_to_end_chats_reaches_their_service() -> None:
    stopped: list[bool] = []
    await ordered(services=SimpleNamespace(chat=SimpleNamespace(stop=lambda: stopped.append(True))))
    assert stopped == [True]


async def test_an_app_without_chats_has_none_to_end() -> None:
    await ordered()
