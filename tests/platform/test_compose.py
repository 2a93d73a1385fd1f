"""docker-compose.yml holds together: nothing it names is missing. No container engine is needed, and none was used."""

import re
import subprocess
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
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


def test_qdrant_stands_beside_the_platform_and_shares_no_network_with_it(compose: Any) -> None:
    services = compose["services"]
    assert services["qdrant"]["networks"] == ["vectors"]
    assert {name for name, service in services.items() if "vectors" in service["networks"]} == {"qdrant", "prometheus"}
    assert not [name for name, service in services.items() if "qdrant" in service.get("depends_on", ())]
    told = [service.get("environment", {}) for name, service in services.items() if name != "qdrant"]
    assert "qdrant" not in str(told).lower()


def test_qdrants_key_is_a_secret_file_that_git_and_images_leave_out(compose: Any) -> None:
    qdrant = compose["services"]["qdrant"]
    assert "API_KEY" not in str(qdrant["environment"])
    assert qdrant["secrets"] == ["qdrant_api_key"]
    assert compose["secrets"]["qdrant_api_key"] == {"file": "${QDRANT_API_KEY_FILE}"}
    key = re.search(r"^QDRANT_API_KEY_FILE=\./(.+)$", (ROOT / ".env.example").read_text(), re.M)
    assert key is not None
    for ignored in (".gitignore", ".dockerignore"):
        assert key[1] in (ROOT / ignored).read_text().splitlines()
    # Prometheus reads the same file: the folder that it has mounted, and the name in its configuration.
    scraped = (ROOT / "observability" / "prometheus" / "prometheus.yml").read_text()
    assert (ROOT / key[1]).parent == ROOT / "observability" / "prometheus"
    assert f"credentials_file: {Path(key[1]).name}" in scraped


@pytest.mark.parametrize(("key", "started"), [("s3cret\n", "s3cret"), ("", "")])
def test_qdrant_starts_with_the_secret_as_its_key_and_not_without_one(
    compose: Any, tmp_path: Path, key: str, started: str
) -> None:
    (tmp_path / "key").write_text(key)
    entrypoint = tmp_path / "entrypoint.sh"
    entrypoint.write_text('#!/usr/bin/env bash\necho "$QDRANT__SERVICE__API_KEY"\n')
    entrypoint.chmod(0o755)
    *shell, script = compose["services"]["qdrant"]["entrypoint"]
    script = script.replace("$$", "$").replace("/run/secrets/qdrant_api_key", str(tmp_path / "key"))
    done = subprocess.run([*shell, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == started
    assert (done.returncode == 0) is bool(started)
    assert bool(started) or "QDRANT_API_KEY_FILE" in done.stderr


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_qdrants_health_check_reads_the_status(compose: Any, status: int, healthy: bool) -> None:
    paths = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        kind, *command, script = compose["services"]["qdrant"]["healthcheck"]["test"]
        script = script.replace("$$", "$").replace("/6333", f"/{server.server_port}")
        done = subprocess.run([*command, script], capture_output=True, timeout=60, check=False)
        thread.join()
    assert kind == "CMD"
    assert paths == ["/readyz"]
    assert (done.returncode == 0) is healthy


def test_what_qdrant_keeps_and_what_restores_it_are_volumes_of_their_own(compose: Any) -> None:
    qdrant = compose["services"]["qdrant"]
    targets = dict(reversed(volume.split(":")) for volume in qdrant["volumes"])
    assert targets == {"/qdrant/storage": "qdrant", "/qdrant/snapshots": "qdrant-snapshots"}
    assert qdrant["environment"]["QDRANT__STORAGE__SNAPSHOTS_PATH"] == "/qdrant/snapshots"


def test_qdrants_tag_is_pinned_and_fits_the_client() -> None:
    tag = re.search(r"^QDRANT_TAG=v(\d+)\.(\d+)\.\d+$", (ROOT / ".env.example").read_text(), re.M)
    assert tag is not None
    runtime = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["runtime"]
    (client,) = (found for found in (re.match(r"qdrant-client==(\d+)\.(\d+)\.", pin) for pin in runtime) if found)
    assert tag[1] == client[1]
    assert abs(int(tag[2]) - int(client[2])) <= 1
