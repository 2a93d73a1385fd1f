from pathlib import Path

import pytest
from pydantic import ValidationError

from zooserve.settings import Settings, secret


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOSERVE_PORT", "9001")
    monkeypatch.setenv("ZOOSERVE_ZOO__HTTP_PORT", "9002")
    monkeypatch.setenv("ZOOSERVE_ROUTER__REPLICAS", "2")
    settings = Settings()
    assert (settings.port, settings.zoo.http_port, settings.router.replicas) == (9001, 9002, 2)


@pytest.mark.parametrize(("name", "value"), [("PORT", "70000"), ("PORT", "http"), ("ROUTER__REPLICAS", "0")])
def test_a_bad_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"ZOOSERVE_{name}", value)
    with pytest.raises(ValidationError, match=name.rpartition("__")[2].lower()):
        Settings()


def test_resolved_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings().resolved()
    assert settings.catalogue == tmp_path / "zoo.yaml"
    assert settings.state_dir.is_absolute()
    assert settings.zoo_repository == tmp_path / "model_repository" / "zoo"


def test_the_access_log_lies_with_the_other_logs_also_where_nobody_resolved_the_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Settings().access_log_file == Path("/home/somebody/.local/state/zooserve/logs/access.jsonl")
    monkeypatch.setenv("ZOOSERVE_ACCESS_LOG__FOLDER", "~/logs")
    assert Settings().access_log_file == Path("/home/somebody/logs/access.jsonl")


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_a_secret_is_read_by_name_and_an_empty_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", " sk-1\n")
    assert secret("UPSTREAM_KEY") == "sk-1"
    monkeypatch.setenv("UPSTREAM_KEY", " ")
    assert secret("UPSTREAM_KEY") is None
    monkeypatch.delenv("UPSTREAM_KEY")
    assert secret("UPSTREAM_KEY") is None
