"""What a platform will consist of, for the models that are enabled."""

from pathlib import Path

import pytest

from zooserve.catalogue import load_catalogue
from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve.triton.installation import Installation
from zooserve_cli.plan import Plan, make_plan, with_ports

ROOT = Path(__file__).parents[3]


@pytest.fixture
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Plan:
    """The plan for the committed repository, with the models of the parameter."""
    settings = Settings(
        port=reserved_ports(1)[0], state_dir=tmp_path, repository=ROOT / "model_repository", models=request.param
    )
    catalogue = load_catalogue(ROOT / "zoo.yaml").enabling(request.param)
    return make_plan(with_ports(settings), catalogue, Installation(tmp_path, tmp_path, tmp_path, {}))


def loaded(command: list[str]) -> set[str]:
    return {word.partition("=")[2] for word in command if word.startswith("--load-model=")}


def watched(plan: Plan) -> set[str]:
    return {probe.model for probe in (*plan.zoo_watch._probes, *plan.leaf_watch._probes)}


@pytest.mark.parametrize("plan", ["default"], indirect=True)
def test_by_default_no_optional_model_is_loaded_or_watched(plan: Plan) -> None:
    assert {"embed", "embed_bulk_encoder", "rag_query", "language_encoder"} <= loaded(plan.zoo.command())
    assert not {"nsfw", "nsfw_reader", "file_type_encoder", "injection"} & loaded(plan.zoo.command())
    assert loaded(plan.leaf.command()) == {"tensorrt_llm"}
    assert {"embed", "embed_bulk", "language", "tensorrt_llm"} <= watched(plan)
    assert not {"nsfw", "file_type", "injection"} & watched(plan)


@pytest.mark.parametrize("plan", ["nsfw,injection"], indirect=True)
def test_what_is_asked_for_is_loaded_with_the_stages_it_reaches_and_nothing_of_the_others(plan: Plan) -> None:
    models = loaded(plan.zoo.command())
    assert {"nsfw", "nsfw_reader", "nsfw_encoder"} <= models
    assert {"injection", "embed_tokenizer", "embed_encoder", "injection_head"} <= models
    assert not {"embed", "embed_bulk", "rag_query", "rerank_encoder"} & models
    assert loaded(plan.leaf.command()) == set()
    assert watched(plan) == {"nsfw", "injection"}
