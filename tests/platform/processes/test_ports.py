import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from zooserve.errors import PortTaken, SetupError
from zooserve.processes.ports import free_ports, owner_of, require_free, reserved_ports


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


def test_a_host_on_which_nobody_can_listen_is_told() -> None:
    with pytest.raises(SetupError, match=r"Nothing can listen on 'no\.such\.host'"):
        reserved_ports(1, "no.such.host")


def test_reserved_ports_are_different_free_and_none_that_the_kernel_gives_away() -> None:
    ports = reserved_ports(5)
    assert len(set(ports)) == 5
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in ports:
        assert port < lowest
        require_free("127.0.0.1", port, "SETTING")


def test_reserved_ports_keep_off_those_that_are_promised_already() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    promised = range(20_000, lowest - 40)
    assert not set(reserved_ports(5, but=promised)) & set(promised)


def test_a_taken_port_names_port_owner_and_setting(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert owner_of(port) == os.getpid()
    with pytest.raises(PortTaken) as told:
        require_free("127.0.0.1", port, "ZOOSERVE_PORT")
    message = str(told.value)
    assert f"Port {port}" in message
    assert f"process {os.getpid()}: " in message
    assert "ZOOSERVE_PORT" in message


@pytest.fixture
def listener6() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET6) as taken:
        try:
            taken.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        taken.listen()
        yield taken


def test_a_taken_port_is_told_for_ipv6_too(listener6: socket.socket) -> None:
    with pytest.raises(PortTaken):
        require_free("::1", listener6.getsockname()[1], "ZOOSERVE_PORT")


def test_a_free_port_on_a_name_or_on_ipv6_is_free(listener6: socket.socket) -> None:
    port = free_ports(1)[0]
    for host in ("localhost", "::1", "::", "0.0.0.0"):
        require_free(host, port, "ZOOSERVE_PORT")


@pytest.mark.parametrize("host", ["203.0.113.1", "nowhere.invalid"])
@pytest.mark.parametrize(
    ("setting", "named"),
    [("ZOOSERVE_PORT", "ZOOSERVE_HOST"), ("ZOOSERVE_ZOO__HTTP_PORT", "ZOOSERVE_ZOO__HOST")],
)
def test_a_host_that_is_not_this_machines_is_told_by_its_setting(host: str, setting: str, named: str) -> None:
    with pytest.raises(SetupError, match=f"{host}.*{named} or {setting}") as told:
        require_free(host, free_ports(1)[0], setting)
    assert not isinstance(told.value, PortTaken)


def test_a_port_with_connections_in_time_wait_counts_as_free(listener: socket.socket) -> None:
    address = listener.getsockname()
    with socket.create_connection(address):
        served, _ = listener.accept()
        served.close()  # this side closes first, so it waits
    listener.close()
    require_free(address[0], address[1], "SETTING")


def test_a_port_nobody_listens_on_has_no_owner() -> None:
    assert owner_of(free_ports(1)[0]) is None
