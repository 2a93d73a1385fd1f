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


ON_THE_ENGINE = """
models:
  - {name: ours, task: chat, runs_on: engine, limits: {max_tokens: 9}, licence: none, source: a test}
"""


def checked(folder: Path, catalogue: str, name: str) -> list[Check]:
    (folder / "zoo.yaml").write_text(catalogue)
    settings = Settings(catalogue=folder / "zoo.yaml", state_dir=folder, repository=folder)
    return [check for check in all_checks(settings) if check.name.startswith(name)]


def keys_checked(folder: Path) -> list[Check]:
    return checked(folder, CATALOGUE, "key of")


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


def test_the_engines_model_is_looked_for_where_a_model_runs_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOOSERVE_ENGINE__GGUF", str(tmp_path / "better.gguf"))
    (missing,) = checked(tmp_path, ON_THE_ENGINE, "model of the engine")
    assert (missing.ok, missing.found) == (False, f"{tmp_path / 'better.gguf'} is missing")
    assert "ZOOSERVE_ENGINE__GGUF" in missing.mend
    (tmp_path / "better.gguf").touch()
    assert [check.ok for check in checked(tmp_path, ON_THE_ENGINE, "model of the engine")] == [True]
    assert checked(tmp_path, CATALOGUE, "model of the engine") == []
