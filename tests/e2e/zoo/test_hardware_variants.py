"""`--model-config-name` in a real Triton 2.51 without a GPU: each model takes its own variant, or else config.pbtxt."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.e2e

ZOO = Path(__file__).parents[3] / "model_repository" / "zoo"
MODELS = (
    "embed_bulk_tokenizer",  # its variant: four instances instead of one
    "embed_encoder",  # its variant: on a GPU
    "embed_sparse",  # no variant
    "embed_sparse_encoder",  # its variant: on the CPU, nothing ragged
    "embed_sparse_tokenizer",  # no variant of this name
)
TEXTS = ("short", "a text of quite some more words than the other one, so that it falls into another bucket")


@pytest.fixture(scope="module")
def shared(start_zoo: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The zoo as a server with `--model-config-name=shared` has it."""
    root = tmp_path_factory.mktemp("shared")
    for name in MODELS:
        (root / name).symlink_to(ZOO / name)
    return start_zoo("shared", root, arguments=("--model-config-name=shared",))


def test_a_model_takes_its_variant_and_one_without_it_the_default(shared: Any) -> None:
    counts = {name: shared.client.get_model_config(name)["instance_group"][0]["count"] for name in MODELS[0::4]}
    assert counts == {"embed_bulk_tokenizer": 4, "embed_sparse_tokenizer": 1}
    parameters = shared.client.get_model_config("embed_sparse_encoder")["parameters"]
    assert parameters["memory.enable_memory_arena_shrinkage"] == {"string_value": "cpu:0"}
    assert "run_elements" not in parameters


def test_the_json_of_a_configuration_has_parameters_where_the_file_has_none(shared: Any) -> None:
    """So the native backend's older reading of `gpu_mem_limit` always runs, and replaces an accelerator's."""
    config = shared.client.get_model_config("embed_sparse_tokenizer")
    assert "parameters {" not in (ZOO / "embed_sparse_tokenizer/config.pbtxt").read_text()
    assert config["parameters"] == {}


def test_a_variant_on_a_gpu_is_refused_by_name_where_there_is_none(shared: Any) -> None:
    state, reason = shared.state("embed_encoder")
    assert state == "UNAVAILABLE"
    assert "GPU" in reason


def test_texts_of_unequal_length_at_once_get_the_default_s_answers(shared: Any, zoo: Any) -> None:
    outputs = ["indices", "values"]

    def asked(server: Any) -> list[Any]:
        return server.at_once([lambda text=text: server.ask("embed_sparse", [text], outputs) for text in TEXTS * 4])

    for found, wanted in zip(asked(shared), asked(zoo), strict=True):
        np.testing.assert_array_equal(found["indices"], wanted["indices"])
        np.testing.assert_allclose(found["values"], wanted["values"], atol=1e-5)
