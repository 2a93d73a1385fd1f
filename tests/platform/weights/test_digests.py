"""One digest of what a model runs on: the same on every machine, another when the weights are others."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from zooserve.catalogue import Catalogue, load_catalogue, space_fingerprints
from zooserve.settings import Settings
from zooserve.weights.digests import weights_digests
from zooserve.weights.lock import WeightsLock, load_lock

ROOT = Path(__file__).parents[3]
GGUF = Settings().engine.gguf


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue(ROOT / "zoo.yaml").enabling("all")


@pytest.fixture(scope="module")
def lock() -> WeightsLock:
    return load_lock(ROOT / "weights.lock")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The committed configurations, without any weights, as a fresh checkout has them."""
    for config in (ROOT / "model_repository" / "zoo").glob("*/config.pbtxt"):
        target = tmp_path / "zoo" / config.parent.name / "config.pbtxt"
        target.parent.mkdir(parents=True)
        shutil.copy(config, target)
    return tmp_path


def with_lock(change) -> WeightsLock:
    document = YAML(typ="safe", pure=True).load((ROOT / "weights.lock").read_text(encoding="utf-8"))
    change(document)
    return WeightsLock.model_validate(document)


def test_models_of_the_same_weights_have_the_same_digest(catalogue, lock, repository) -> None:
    digests = weights_digests(catalogue, lock, repository, GGUF)
    assert digests["embed"] == digests["rerank"]  # MiniLM and its tokenizer, both
    assert len({digests[name] for name in ("embed", "embed_int8", "embed_multilingual", "embed_sparse")}) == 4
    assert all(len(digest) == 64 for digest in digests.values())


def test_the_digest_needs_no_file_that_the_lock_tells(catalogue, lock, repository) -> None:
    """Only builds that read no package, the trained heads, are known by their files."""
    before = weights_digests(catalogue, lock, repository, GGUF)
    for place in lock.places():
        path = repository / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"whatever was built as {place}".encode())
    after = weights_digests(catalogue, lock, repository, GGUF)
    assert {name for name in before if before[name] != after[name]} == {"injection", "rag_query", "rerank_trees"}


def test_the_fingerprints_of_the_committed_spaces_stay_as_they_are(catalogue, lock, repository) -> None:
    """Another value here says that vectors made before mean nothing any more: that is so only with other weights."""
    assert space_fingerprints(catalogue, weights_digests(catalogue, lock, repository, GGUF)) == {
        "embed": "bc7ce5e304176975",
        "embed_int8": "2ee4174e26e98073",
        "embed_multilingual": "5515a26c9cc62639",
        "embed_sparse": "9a4807e7b0f88313",
        "rag_query": "bc7ce5e304176975",
    }


def test_other_weights_are_another_space(catalogue, lock, repository) -> None:
    def change(document) -> None:
        for package in document["packages"]:
            for file in package["files"]:
                if file["path"].endswith("MiniLM-L6-v2/onnx/model.onnx_data"):
                    file["sha256"] = "0" * 64

    before, after = (
        space_fingerprints(catalogue, weights_digests(catalogue, each, repository, GGUF))
        for each in (lock, with_lock(change))
    )
    assert {name for name in before if before[name] != after[name]} == {"embed", "rag_query", "embed_int8"}


@pytest.mark.parametrize("update", [{"version": 2}, {"dimensions": 383}, {"name": "other"}])
def test_another_version_or_shape_is_another_space(catalogue, update) -> None:
    embed = catalogue.resolve("embed")
    spaces = [space_fingerprints(Catalogue((one,)), {}) for one in (embed, embed.model_copy(update=update))]
    assert spaces[0]["embed"] != next(iter(spaces[1].values()))


def test_limits_and_licences_do_not_make_a_space(catalogue) -> None:
    embed = catalogue.resolve("embed")
    other = embed.model_copy(update={"licence": "MIT", "description": "", "chunk_rows": 8, "optional": True})
    assert space_fingerprints(Catalogue((embed,)), {}) == space_fingerprints(Catalogue((other,)), {})


def test_a_model_of_ones_own_is_known_by_its_files(catalogue, lock, repository) -> None:
    own = catalogue.resolve("embed").model_copy(
        update={"name": "own", "triton": {"interactive": "own"}, "encoder": None, "long_text": None}
    )
    folder = repository / "zoo" / "own" / "1"
    folder.mkdir(parents=True)

    def digest() -> str:
        return weights_digests(Catalogue((own,)), lock, repository, GGUF)["own"]

    assert digest() == ""
    (folder / "model.onnx").write_bytes(b"weights")
    with_weights = digest()
    (folder / "model.py").write_text("code")
    (folder / ".hidden").write_text("by nobody")
    assert digest() == with_weights != ""
    (folder / "model.onnx").write_bytes(b"weighty")
    assert digest() != with_weights


def test_a_plan_that_a_gpu_made_of_the_weights_leaves_the_space_as_it_is(catalogue, lock, repository) -> None:
    before = weights_digests(catalogue, lock, repository, GGUF)
    folder = repository / "zoo" / "embed_encoder" / "1"
    folder.mkdir(parents=True)
    stem = "nvidia-h200_trt-10.14.1.48_26.07"
    for name in (f"{stem}.plan", f"{stem}.json", f"{stem}.failed.json", "model.plan", ".engine.lock"):
        (folder / name).write_bytes(b"of one GPU")
    assert weights_digests(catalogue, lock, repository, GGUF) == before


def test_of_gigabytes_beginning_end_and_length_are_read(catalogue, lock, repository) -> None:
    own = catalogue.resolve("embed").model_copy(
        update={"name": "own", "triton": {"interactive": "own"}, "encoder": None, "long_text": None}
    )
    file = repository / "zoo" / "own" / "1" / "model.plan"
    file.parent.mkdir(parents=True)
    digests = []
    for at in (None, 0, 80 * 2**20 - 1, 40 * 2**20):
        with file.open("wb") as sparse:
            sparse.truncate(80 * 2**20)
            if at is not None:
                sparse.seek(at)
                sparse.write(b"x")
        digests.append(weights_digests(Catalogue((own,)), lock, repository, GGUF)["own"])
    assert len(set(digests)) == 3
    assert digests[0] == digests[3]  # in the middle of a file of this size nothing is looked at


def test_what_runs_elsewhere_has_no_digest(catalogue, lock, repository) -> None:
    chat = catalogue.resolve("chat")
    backend = chat.chat_backend.model_copy(update={"leaves": ("leaf:8001",)})
    elsewhere = chat.model_copy(update={"name": "elsewhere", "backend": backend})
    digests = weights_digests(Catalogue((chat, elsewhere)), lock, repository, GGUF)
    assert digests["chat"] != ""
    assert digests["elsewhere"] == ""


def test_the_engine_runs_the_model_that_the_settings_name(catalogue, lock, repository, tmp_path: Path) -> None:
    other = tmp_path / "better.gguf"
    other.write_bytes(b"weights")
    digests = [weights_digests(catalogue, lock, repository, gguf)["chat_json"] for gguf in (GGUF, GGUF, other)]
    assert digests[0] == digests[1] != digests[2]
    other.write_bytes(b"weighty")
    assert weights_digests(catalogue, lock, repository, other)["chat_json"] != digests[2]
