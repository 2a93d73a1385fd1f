import os
import socket
from collections.abc import Iterator

import pytest

from zooserve.errors import PortTaken
from zooserve.processes.ports import free_ports, owner_of, require_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        require_free("127.0.0.1", port, "SETTING")


def test_a_taken_port_names_port_owner_and_setting(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert owner_of(port) == os.getpid()
    with pytest.raises(PortTaken) as told:
        require_free("127.0.0.1", port, "ZOOSERVE_PORT")
    message = str(told.value)
    assert f"Port {port}" in message
    assert f"process {os.getpid()}: " in message
    assert "ZOOSERVE_PORT" in message


def test_a_port_with_connections_in_time_wait_counts_as_free(listener: socket.socket) -> None:
    address = listener.getsockname()
    with socket.create_connection(address):
        served, _ = listener.accept()
        served.close()  # this side closes first, so it waits
    listener.close()
    require_free(*address, "SETTING")


def test_a_port_nobody_listens_on_has_no_owner() -> None:
    assert owner_of(free_ports(1)[0]) is None
