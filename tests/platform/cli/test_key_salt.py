"""The salt of key ids: made once, kept for its owner alone, handed on without landing where others read."""

import json
import stat
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import ValidationError

from zooserve.errors import SetupError
from zooserve.processes.child import Child
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings
from zooserve_cli.key_salt import with_key_salt
from zooserve_cli.leftovers import remove_sockets
from zooserve_cli.router_process import RouterProcess
from zooserve_router.serve import RayPorts


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path)
    folder.create()
    return folder


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_platform_keeps_its_salt_from_one_start_to_the_next(folder: StateFolder) -> None:
    first = with_key_salt(Settings(), folder).key_salt
    assert len(first) == 64
    assert with_key_salt(Settings(), folder).key_salt == first
    assert mode(folder.key_salt_file) == 0o600


def test_a_salt_may_lie_in_a_file_as_container_engines_mount_secrets(
    folder: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "salt").write_text("0123456789abcdef\n")
    monkeypatch.setenv("ZOOSERVE_KEY_SALT_FILE", str(tmp_path / "salt"))
    assert with_key_salt(Settings(), folder).key_salt == "0123456789abcdef"
    assert not folder.key_salt_file.exists()
    monkeypatch.setenv("ZOOSERVE_KEY_SALT", "fedcba9876543210")
    assert with_key_salt(Settings(), folder).key_salt == "fedcba9876543210"


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), ("", "16 characters"), ("short", "16 ch")])
def test_a_file_without_a_salt_is_refused_and_not_told(
    folder: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "salt").write_text(content)
    monkeypatch.setenv("ZOOSERVE_KEY_SALT_FILE", str(tmp_path / "salt"))
    with pytest.raises(SetupError, match=f"ZOOSERVE_KEY_SALT_FILE: .*{told}") as refusal:
        with_key_salt(Settings(), folder)
    assert "short" not in str(refusal.value)


def test_two_platforms_have_two_salts(folder: StateFolder, tmp_path: Path) -> None:
    other = StateFolder(tmp_path / "other")
    other.create()
    assert with_key_salt(Settings(), folder).key_salt != with_key_salt(Settings(), other).key_salt


def test_a_salt_of_the_settings_is_used_and_not_kept(folder: StateFolder) -> None:
    assert with_key_salt(Settings(key_salt="0123456789abcdef"), folder).key_salt == "0123456789abcdef"
    assert not folder.key_salt_file.exists()


@pytest.mark.parametrize("damage", [b"", b"half", b"\xff" * 64 + b"x"])
def test_a_damaged_salt_is_made_anew(folder: StateFolder, damage: bytes) -> None:
    folder.key_salt_file.write_bytes(damage)
    assert len(with_key_salt(Settings(), folder).key_salt) == 64


def test_a_salt_that_others_could_read_is_closed_to_them(folder: StateFolder) -> None:
    first = with_key_salt(Settings(), folder).key_salt
    folder.key_salt_file.chmod(0o644)
    assert with_key_salt(Settings(), folder).key_salt == first
    assert mode(folder.key_salt_file) == 0o600


def test_a_salt_that_cannot_be_read_is_told_with_the_way_out(folder: StateFolder) -> None:
    folder.key_salt_file.mkdir()
    with pytest.raises(SetupError, match=r"key_salt cannot be used .*ZOOSERVE_KEY_SALT"):
        with_key_salt(Settings(), folder)


def test_a_salt_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ValidationError, match="16 characters or more"):
        Settings(key_salt="secret")


def test_no_printed_settings_show_the_salt(folder: StateFolder) -> None:
    settings = with_key_salt(Settings(), folder)
    assert settings.key_salt not in f"{settings!r} {settings}"


def test_the_routers_orders_bring_it_the_salt_and_are_for_their_owner_alone(folder: StateFolder) -> None:
    settings = with_key_salt(Settings(), folder)
    router = RouterProcess(
        Child("router", folder.log_file("router")), settings, folder, RayPorts(*range(1, len(fields(RayPorts)) + 1))
    )
    try:
        command, environment = router.command()
    finally:
        remove_sockets(folder)
    orders = Path(command[-1])
    assert mode(orders) == 0o600
    assert json.loads(orders.read_text())["settings"]["key_salt"] == settings.key_salt
    assert settings.key_salt not in " ".join([*command, *environment.values()])
