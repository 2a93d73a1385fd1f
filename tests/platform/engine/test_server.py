"""The engine server as a child: a program that fails says why, and its orders do not outlive it."""

from pathlib import Path

import pytest

from zooserve.engine.orders import EngineOrders
from zooserve.engine.server import EngineServer
from zooserve.errors import ServerFailed
from zooserve.processes.ports import reserved_ports
from zooserve.settings import EngineServerSettings


@pytest.fixture
def server(tmp_path: Path) -> EngineServer:
    settings = EngineServerSettings(port=reserved_ports(1)[0], key="k1", gguf=tmp_path / "missing.gguf")
    orders = EngineOrders.of(settings, tmp_path, ["chat_json"])
    return EngineServer(orders, tmp_path / "engine.json", tmp_path / "engine.log")


def test_a_missing_model_is_told_with_what_to_do(server: EngineServer, tmp_path: Path) -> None:
    server.start()
    with pytest.raises(ServerFailed, match=r"missing\.gguf is not there: run `zooserve fetch`"):
        server.wait_until_loaded(60)
    assert server.pid is None
    server.stop(1)


def test_orders_are_for_their_owner_alone_and_go_with_the_server(server: EngineServer, tmp_path: Path) -> None:
    server.start()
    file = tmp_path / "engine.json"
    assert file.stat().st_mode & 0o077 == 0
    assert EngineOrders.model_validate_json(file.read_text()) == server.orders
    server.stop(5)
    assert not file.exists()
