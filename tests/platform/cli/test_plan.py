"""What a platform will consist of, for the models that are enabled."""

import socket
from pathlib import Path

import pytest

from zooserve.catalogue import Backend, Catalogue, load_catalogue
from zooserve.errors import PortTaken
from zooserve.processes.ports import reserved_ports
from zooserve.settings import EngineServerSettings, RouterSettings, Settings
from zooserve.triton.installation import Installation
from zooserve_cli.fetch import unwanted_folders
from zooserve_cli.plan import Plan, make_plan, with_ports
from zooserve_cli.router_process import ray_ports

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


def test_exporters_listen_where_the_settings_say(tmp_path: Path) -> None:
    haproxy, ray = reserved_ports(2)
    bounds = RouterSettings(haproxy_metrics_host="0.0.0.0", haproxy_metrics_port=haproxy, ray_metrics_port=ray)
    ports = ray_ports(Settings(state_dir=tmp_path, router=bounds))
    assert (ports.haproxy_metrics, ports.ray_metrics, ports.exporter_host) == (haproxy, ray, "0.0.0.0")
    assert len({ports.haproxy_metrics, ports.ray_metrics, ports.haproxy_stats, ports.fallback_proxy}) == 4


def test_a_taken_port_of_an_exporter_is_told_with_its_setting(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bounds = RouterSettings(haproxy_metrics_port=taken.getsockname()[1])
        with pytest.raises(PortTaken, match="ZOOSERVE_ROUTER__HAPROXY_METRICS_PORT"):
            ray_ports(Settings(state_dir=tmp_path, router=bounds))


def test_leaves_that_the_catalogue_names_are_not_watched_here(tmp_path: Path) -> None:
    catalogue = load_catalogue(ROOT / "zoo.yaml").enabling("chat")
    (chat,) = catalogue
    elsewhere = chat.model_copy(update={"backend": Backend(leaves=("gpu-1:8001", "gpu-2:8001"))})
    settings = with_ports(Settings(port=reserved_ports(1)[0], state_dir=tmp_path, repository=ROOT / "model_repository"))
    installation = Installation(tmp_path, tmp_path, tmp_path, {})
    assert watched(make_plan(settings, Catalogue((chat,)), installation)) == {"tensorrt_llm"}
    assert watched(make_plan(settings, Catalogue((elsewhere,)), installation)) == set()


@pytest.mark.parametrize("plan", ["default"], indirect=True)
def test_without_a_model_on_it_there_is_no_engine(plan: Plan) -> None:
    assert plan.engine is None


@pytest.mark.parametrize("plan", ["default,chat_json"], indirect=True)
def test_the_engine_serves_its_models_at_a_port_and_with_a_key_of_its_own(plan: Plan) -> None:
    assert plan.engine is not None
    orders, settings = plan.engine.orders, plan.settings
    assert orders.names == ("chat_json",)
    assert orders.gguf == ROOT / "model_repository/leaf/tensorrt_llm/1/model.gguf"
    assert (orders.port, orders.key) == (settings.engine.port, settings.engine.key)
    assert len(orders.key) == 32
    ports = [getattr(triton, f"{name}_port") for triton in (settings.zoo, settings.leaf) for name in ("http", "grpc")]
    assert orders.port not in {*ports, settings.port, settings.trace_log.port, None}


def test_a_fixed_port_of_the_engine_that_is_taken_is_told_by_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        engine = EngineServerSettings(port=taken.getsockname()[1])
        with pytest.raises(PortTaken, match="ZOOSERVE_ENGINE__PORT"):
            with_ports(Settings(port=reserved_ports(1)[0], engine=engine))


def test_the_weights_of_what_runs_on_the_engine_are_wanted_though_no_triton_loads_them() -> None:
    settings = Settings(repository=ROOT / "model_repository", catalogue=ROOT / "zoo.yaml")
    only_embed = settings.model_copy(update={"models": "embed"})
    assert "leaf/tensorrt_llm" in unwanted_folders(only_embed)
    with_engine = settings.model_copy(update={"models": "embed,chat_json"})
    assert "leaf/tensorrt_llm" not in unwanted_folders(with_engine)
