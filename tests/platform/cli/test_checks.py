"""What is looked at before a start, beyond the machine itself."""

from pathlib import Path

import pytest

from zooserve.settings import Settings
from zooserve_cli.checks import Check, all_checks

CATALOGUE = """
models:
  - {name: theirs, task: chat, runs_on: upstream, limits: {max_tokens: 9}, licence: none, source: a test,
     backend: {kind: openai, url: "https://upstream/v1", key_env: UPSTREAM_KEY}}
  - {name: open, task: chat, runs_on: upstream, limits: {max_tokens: 9}, licence: none, source: a test,
     backend: {kind: openai, url: "http://gpu-1:8000/v1"}}
"""


def keys_checked(folder: Path) -> list[Check]:
    (folder / "zoo.yaml").write_text(CATALOGUE)
    settings = Settings(catalogue=folder / "zoo.yaml", state_dir=folder, repository=folder)
    return [check for check in all_checks(settings) if check.name.startswith("key of")]


def test_a_missing_key_of_an_upstream_is_told_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPSTREAM_KEY", raising=False)
    (check,) = keys_checked(tmp_path)
    assert (check.name, check.ok, check.found) == ("key of theirs", False, "missing")
    assert "UPSTREAM_KEY" in check.mend


def test_a_key_that_is_set_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-very-secret")
    (check,) = keys_checked(tmp_path)
    assert check.ok
    assert "sk-very-secret" not in repr(check)
