"""docker-compose.yml holds together: nothing it names is missing. No container engine is needed, and none was used."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()


@pytest.fixture
def compose() -> Any:
    return YAML(typ="safe").load(TEXT)


def test_every_variable_is_explained_in_the_example_and_no_other() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    lines = (ROOT / ".env.example").read_text().splitlines()
    assert {line.partition("=")[0] for line in lines if "=" in line and not line.startswith("#")} == used


def test_the_parts_are_there_and_only_the_router_is_published_to_all(compose: Any) -> None:
    always = {name for name, service in compose["services"].items() if "profiles" not in service}
    assert always == {"zoo", "leaf", "router", "qdrant"}
    published = {
        name
        for name, service in compose["services"].items()
        if any(not str(port).startswith("127.0.0.1:") for port in service.get("ports", ()))
    }
    assert published == {"router"}


def test_every_container_file_network_and_volume_is_there(compose: Any) -> None:
    for service in compose["services"].values():
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert set(service["networks"]) <= set(compose["networks"])
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).exists()
            elif not source.startswith("${"):
                assert source in compose["volumes"]


def test_the_router_is_told_where_its_tritons_are_by_settings_that_exist(compose: Any) -> None:
    from zooserve.settings import Settings

    environment = compose["services"]["router"]["environment"]
    for name in environment:
        field, _, inner = name.removeprefix("ZOOSERVE_").lower().partition("__")
        assert field in Settings.model_fields
        assert not inner or inner in Settings.model_fields[field].annotation.model_fields  # type: ignore[union-attr]
    assert {environment["ZOOSERVE_ZOO__HOST"], environment["ZOOSERVE_LEAF__HOST"]} <= set(compose["services"])


def test_containers_copy_only_what_exists() -> None:
    for file in (ROOT / "router" / "Dockerfile", ROOT / "ensembles" / "Dockerfile"):
        for line in file.read_text().splitlines():
            if line.startswith("COPY "):
                assert all((ROOT / source).exists() for source in line.split()[1:-1]), line


def test_prometheus_scrapes_each_part_by_its_name_and_tritons_have_their_quantiles(compose: Any) -> None:
    scraped = YAML(typ="safe").load((ROOT / "observability" / "prometheus" / "prometheus.yml").read_text())
    named = {name for job in scraped["scrape_configs"] for found in job["dns_sd_configs"] for name in found["names"]}
    assert named == {"zoo", "leaf", "router", "qdrant"}
    assert "--metrics-config=summary_latencies=true" in compose["services"]["zoo"]["command"]
    launches = [file.read_text() for file in (ROOT / "model_repository" / "trtllm").glob("*/tensorrt_llm/launch.sh")]
    own = [launch for launch in launches if "tritonserver --model-repository" in launch]
    assert own
    assert all("--metrics-config=summary_latencies=true" in launch for launch in own)
