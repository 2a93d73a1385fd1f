"""What docker-compose.yml intends, as the real Docker Compose reads it. No container engine is needed.

That everything it names is there is `zooserve stack check`'s to say (tests/platform/stack).
"""

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from zooserve.catalogue import load_catalogue
from zooserve.settings import Settings
from zooserve.triton.server import METRICS_ARGUMENTS
from zooserve.triton.tracing import trace_arguments
from zooserve_cli.bounds import LEFT_GRACE_S, router_stop_s

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
EXAMPLE = (ROOT / ".env.example").read_text()
VARIABLES = dict(re.findall(r"^([A-Z_]+)=(.*)$", EXAMPLE, re.M))

ALWAYS = {"weights", "qdrant", "collector", "tempo", "prometheus", "grafana"}
SERVERS = {
    "gpu": {"zoo", "leaf", "router"},
    "cpu": {"zoo-cpu", "leaf-cpu", "router"},
    "vllm": {"zoo", "vllm", "router-vllm"},
    "shared-gpu": {"zoo-shared", "leaf-shared", "router"},
}
EVERYWHERE = [(profile, name) for profile, servers in SERVERS.items() for name in sorted(servers | ALWAYS)]


@lru_cache
def rendered(profile: str, *overrides: str) -> Any:
    """The file for this profile, every variable replaced, as Compose would start it."""
    files = [word for name in ("docker-compose.yml", *overrides) for word in ("-f", name)]
    done = subprocess.run(
        [TOOLS / "docker-compose", *files, "--env-file", ".env.example", "config", "--format", "json"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "COMPOSE_PROFILES": profile},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "variable is not set" not in done.stderr
    return json.loads(done.stdout)


def service(name: str) -> Any:
    """One service, in a profile that has it."""
    profile = next(profile for profile, each in EVERYWHERE if each == name)
    return rendered(profile)["services"][name]


def started_by(profile: str) -> set[str]:
    return set(rendered(profile)["services"])


@pytest.mark.parametrize("profile", SERVERS)
def test_a_profile_alone_picks_its_servers(profile: str) -> None:
    assert started_by(profile) == SERVERS[profile] | ALWAYS


def test_the_example_starts_the_zoo_and_the_leaf_on_gpus() -> None:
    assert VARIABLES["COMPOSE_PROFILES"] == "gpu"


def test_the_file_is_what_the_published_schema_allows() -> None:
    for file in ("docker-compose.yml", "platform/deploy/compose.loopback.yml"):
        checked = [str(TOOLS / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", file]
        done = subprocess.run(checked, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_every_variable_is_explained_in_the_example_and_no_other() -> None:
    text = "".join((ROOT / name).read_text() for name in ("docker-compose.yml", "platform/deploy/compose.plan.yml"))
    # Compose itself reads the first; what a share of the card is, only the checker does.
    others = {"COMPOSE_PROFILES", "SHARED_GPU_BYTES", "LEAF_SHARED_WEIGHTS_BYTES", "LEAF_SHARED_WORKSPACE_BYTES"}
    assert set(VARIABLES) == set(re.findall(r"\$\{([A-Z_]+)", text)) | others
    lines = EXAMPLE.splitlines()
    explained = [above.startswith("# ") and "---" not in above for above, line in pairwise(lines) if line[:1].isupper()]
    assert explained == [True] * len(VARIABLES)


@pytest.mark.parametrize("profile", SERVERS)
def test_only_the_router_and_grafana_are_published_and_on_loopback_unless_told_otherwise(profile: str) -> None:
    published = {
        (name, port["host_ip"], port["published"], port["target"])
        for name, each in rendered(profile)["services"].items()
        for port in each.get("ports", ())
    }
    router = "router-vllm" if profile == "vllm" else "router"
    assert published == {(router, "127.0.0.1", "8000", 8000), ("grafana", "127.0.0.1", "3000", 3000)}


@pytest.mark.parametrize("profile", SERVERS)
def test_an_override_puts_qdrant_and_prometheus_on_loopback_and_nothing_else(profile: str) -> None:
    usual = rendered(profile)["services"]
    with_loopback = rendered(profile, "platform/deploy/compose.loopback.yml")
    changed = {name for name, each in with_loopback["services"].items() if each != usual[name]}
    assert changed == {"qdrant", "prometheus"}
    for name, port in (("qdrant", "6333"), ("prometheus", "9090")):
        each = with_loopback["services"][name]
        assert [(one["host_ip"], one["published"], str(one["target"])) for one in each["ports"]] == [
            ("127.0.0.1", port, port)
        ]
        # On internal networks alone nothing would be published.
        assert set(each["networks"]) == {*usual[name]["networks"], "loopback"}
    assert not with_loopback["networks"]["loopback"].get("internal")


@pytest.mark.parametrize(("profile", "name"), EVERYWHERE)
def test_a_container_has_what_it_needs_and_no_more(profile: str, name: str) -> None:
    each = rendered(profile)["services"][name]
    assert each["read_only"] is True
    assert each["cap_drop"] == ["ALL"]
    assert each["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices", "userns_mode"} & set(each)
    assert not [mount for mount in each.get("volumes", ()) if "docker.sock" in mount["source"]]
    assert each["pids_limit"] > 0
    assert int(each["mem_limit"]) >= 2**30
    assert each["logging"] == {"driver": "json-file", "options": {"max-size": "20m", "max-file": "5"}}
    assert each["restart"] == ("no" if name == "weights" else "unless-stopped")
    assert re.search(r":[^:]*\d\.?\d", each["image"]), "a tag that moves"


@pytest.mark.parametrize("profile", SERVERS)
def test_our_own_images_are_built_once_and_never_asked_of_a_registry(profile: str) -> None:
    services = rendered(profile)["services"].values()
    built = [each["image"] for each in services if "build" in each]
    assert len(built) == len(set(built))
    assert set(built) == {each["image"] for each in services if each["image"].startswith("zooserve/")}
    assert {each.get("pull_policy") for each in services if each["image"] in built} == {"never"}
    assert not [each for each in services if "pull_policy" in each and each["image"] not in built]


def test_whose_image_would_be_root_gets_another_user() -> None:
    """Our own images name theirs (tests/platform/containers), as do the others' that are used as they are."""
    assert service("vllm")["user"] == "2000:0"
    assert VARIABLES["QDRANT_TAG"].endswith("-unprivileged")


@pytest.mark.parametrize(("profile", "name"), EVERYWHERE)
def test_only_the_weights_service_writes_into_the_checkout(profile: str, name: str) -> None:
    mounts = rendered(profile)["services"][name].get("volumes", ())
    written = [mount for mount in mounts if mount["type"] == "bind" and not mount.get("read_only")]
    assert [mount["target"] for mount in written] == (["/models"] if name == "weights" else [])


def test_scratch_space_that_code_runs_from_is_not_mounted_noexec() -> None:
    for name in ("zoo", "leaf", "vllm", "router", "zoo-cpu", "leaf-cpu"):
        (scratch,) = (mount for mount in service(name)["tmpfs"] if mount.startswith("/tmp:"))
        assert "exec" in scratch.partition(":")[2].split(",")


GPUS = {"zoo": "0", "leaf": "1", "vllm": "1", "zoo-shared": "0", "leaf-shared": "0"}


@pytest.mark.parametrize(("profile", "name"), EVERYWHERE)
def test_gpus_are_given_by_their_ids_and_none_where_none_is_needed(profile: str, name: str) -> None:
    resources = rendered(profile)["services"][name].get("deploy", {}).get("resources", {})
    devices = resources.get("reservations", {}).get("devices", [])
    wanted = [GPUS[name]] if name in GPUS else []
    assert [device["device_ids"] for device in devices] == [[one] for one in wanted]
    assert all(device["driver"] == "nvidia" and device["capabilities"] == ["gpu"] for device in devices)


def test_an_override_gives_the_leaf_several_gpus_in_the_place_of_one() -> None:
    (device,) = rendered("gpu", "platform/deploy/compose.leaf-gpus.yml")["services"]["leaf"]["deploy"]["resources"][
        "reservations"
    ]["devices"]
    assert device["device_ids"] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("name", GPUS)
def test_nvidias_containers_have_what_they_ask_for(name: str) -> None:
    each = service(name)
    assert each["ulimits"] == {"memlock": -1, "stack": 67108864}
    assert int(each["shm_size"]) >= 2 * 2**30
    assert each["working_dir"] == "/tmp"  # outside of any clone of TensorRT-LLM, which Python would import


@pytest.mark.parametrize("name", ["leaf", "leaf-shared", "vllm"])
def test_checkpoints_are_kept_and_the_hubs_token_is_a_secret(name: str) -> None:
    each = service(name)
    (kept,) = (mount["target"] for mount in each["volumes"] if mount["type"] == "volume")
    assert kept == ("/home/vllm" if name == "vllm" else each["environment"]["HF_HOME"])
    assert each["environment"]["HF_TOKEN_PATH"] == "/run/secrets/hf_token"
    assert "HF_TOKEN" not in each["environment"]
    assert [one["source"] for one in each["secrets"]] == ["hf_token"]


INTERNAL = {"inside", "telemetry", "vectors"}


@pytest.mark.parametrize(("profile", "name"), EVERYWHERE)
def test_networks_let_through_what_is_meant(profile: str, name: str) -> None:
    stack = rendered(profile)
    assert {each for each, network in stack["networks"].items() if network.get("internal")} == INTERNAL
    outside = {"router": {"front"}, "router-vllm": {"front"}, "grafana": {"front"}, "weights": {"egress"}}
    outside |= {leaf: {"egress"} for leaf in ("leaf", "leaf-shared", "vllm")}
    assert set(stack["services"][name]["networks"]) - INTERNAL == outside.get(name, set())


def test_qdrant_stands_beside_the_platform_and_shares_no_network_with_it() -> None:
    for profile in SERVERS:
        services = rendered(profile)["services"]
        assert set(services["qdrant"]["networks"]) == {"vectors"}
        assert {name for name, each in services.items() if "vectors" in each["networks"]} == {"qdrant", "prometheus"}
        assert not [name for name, each in services.items() if "qdrant" in each.get("depends_on", ())]
        told = [each.get("environment", {}) for name, each in services.items() if name != "qdrant"]
        assert "qdrant" not in str(told).lower()


@pytest.mark.parametrize("profile", SERVERS)
def test_grafana_reaches_no_server_and_who_takes_spans_and_metrics_both_sides(profile: str) -> None:
    services = rendered(profile)["services"]
    within = {network: {name for name, each in services.items() if network in each["networks"]} for network in INTERNAL}
    assert within["inside"] == SERVERS[profile] | {"collector", "prometheus"}
    assert within["telemetry"] == {"collector", "tempo", "prometheus", "grafana"}


@pytest.mark.parametrize("profile", SERVERS)
def test_variants_are_called_alike_so_that_one_configuration_finds_them(profile: str) -> None:
    called = {alias for each in rendered(profile)["services"].values() for alias in aliases(each)}
    assert called == ({"zoo", "router"} if profile == "vllm" else {"zoo", "leaf", "router"})


def aliases(each: Any) -> list[str]:
    return (each["networks"].get("inside") or {}).get("aliases", [])


@pytest.mark.parametrize("profile", SERVERS)
def test_everything_starts_in_order(profile: str) -> None:
    services = rendered(profile)["services"]
    router = next(name for name in SERVERS[profile] if name.startswith("router"))
    servers = SERVERS[profile] - {router}
    for name in (*servers, router):
        waited = services[name]["depends_on"]
        assert waited["weights"]["condition"] == "service_completed_successfully"
        assert waited["collector"]["condition"] == "service_started"
    healthy = [name for name, each in services[router]["depends_on"].items() if each["condition"] == "service_healthy"]
    assert servers == set(healthy) & set(services)
    # Of other profiles' servers Compose would say that they are not there.
    assert not any(services[router]["depends_on"][name]["required"] for name in healthy)
    assert services["grafana"]["depends_on"]["prometheus"]["condition"] == "service_healthy"


def test_beside_the_zoo_the_leaf_takes_of_what_the_zoo_left() -> None:
    assert service("leaf-shared")["depends_on"]["zoo-shared"]["condition"] == "service_healthy"
    # Docker itself, after a reboot, knows no order: the leaf waits by itself.
    waits, starts = service("leaf-shared")["command"][-1].splitlines()
    assert waits == 'until python3 -m zooserve.health --url=http://zoo:8000 zoo "embed"; do sleep 5; done'
    assert starts.split()[:2] == ["exec", service("leaf")["command"][0]]
    assert starts.split()[2:] == service("leaf")["command"][1:]


CHECKS = {
    "zoo": ["--end-after=8", "zoo", "embed"],
    "zoo-shared": ["--end-after=8", "zoo", "embed"],
    "zoo-cpu": ["zoo", "embed"],
    "leaf": ["--end-after=8", "leaf"],
    "leaf-shared": ["--end-after=8", "leaf"],
    "leaf-cpu": ["leaf"],
    "router": ["router", "embed"],
    "router-vllm": ["router", "embed"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_health_is_a_real_inference(name: str) -> None:
    """And nobody else ends what looks after itself. Where our check ends a server, an init ends the container."""
    each = service(name)
    assert each["healthcheck"]["test"] == ["CMD", "python3", "-m", "zooserve.health", *CHECKS[name]]
    assert each["init"] is True


@pytest.mark.parametrize(
    ("status", "answer", "healthy"),
    [(200, b'{"choices": [{"text": "!"}]}', True), (200, b'{"choices": []}', False), (500, b"{}", False)],
)
def test_vllms_health_is_a_token(status: int, answer: bytes, healthy: bool) -> None:
    kind, *command, script = service("vllm")["healthcheck"]["test"]
    asked: list[Any] = []
    done = against(8000, [*command[1:], script], status, answer, asked)
    assert (kind, command) == ("CMD", ["python3", "-c"])
    assert asked == ["/v1/completions"]
    assert (done.returncode == 0) is healthy


def against(port: int, words: list[str], status: int, answer: bytes, asked: list[Any]) -> Any:
    """Run Python or bash on a script that asks this port of loopback, with a server at another one in its place."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        *options, script = words
        script = script.replace("$$", "$").replace(f":{port}", f":{server.server_port}")
        script = script.replace(f"/{port}", f"/{server.server_port}")
        program = "bash" if "/dev/tcp" in script else sys.executable
        done = subprocess.run([program, *options, script], capture_output=True, timeout=60, check=False)
        thread.join()
    return done


def seconds(duration: str) -> float:
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))


def test_nobody_is_killed_who_still_stops_in_order() -> None:
    settings = Settings()
    ours = 2 * LEFT_GRACE_S + 5  # what is left below a server, and Python's own end
    assert seconds(service("router")["stop_grace_period"]) > router_stop_s(settings) + ours
    for name in ("zoo-cpu", "leaf-cpu"):
        assert seconds(service(name)["stop_grace_period"]) > settings.zoo.stop_timeout_s + ours
    (exits,) = (word for word in service("zoo")["command"] if word.startswith("--exit-timeout-secs="))
    assert seconds(service("zoo")["stop_grace_period"]) > int(exits.partition("=")[2])


@pytest.mark.parametrize("name", ["zoo", "zoo-shared"])
def test_the_zoo_runs_as_the_embedded_one_does(name: str) -> None:
    command = service(name)["command"]
    url = f"{service('router')['environment']['ZOOSERVE_TRACING__ENDPOINT']}/v1/traces"
    assert {*METRICS_ARGUMENTS, *trace_arguments(url)} <= set(command)
    assert {"--exit-on-error=false", "--model-control-mode=explicit", "--load-model=*"} <= set(command)
    assert f"--model-config-name={'gpu' if name == 'zoo' else 'shared'}" in command


@pytest.mark.parametrize("name", ["zoo-cpu", "leaf-cpu"])
def test_without_a_gpu_the_wheels_tritons_run_in_the_routers_image(name: str) -> None:
    each = service(name)
    assert each["image"] == service("router")["image"]
    assert each["command"] == ["zooserve", "triton", name.partition("-")[0]]


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Settings]:
    """What a service's environment says, as our programs read it."""

    def read(name: str) -> Settings:
        for variable, value in service(name)["environment"].items():
            monkeypatch.setenv(variable, value)
        return Settings()

    return read


def test_the_router_finds_its_tritons(settings_of: Callable[[str], Settings]) -> None:
    settings = settings_of("router")
    assert (settings.host, settings.port) == ("0.0.0.0", 8000)
    assert (settings.zoo.host, settings.zoo.http_port) == ("zoo", 8000)
    assert (settings.leaf.host, settings.leaf.grpc_port) == ("leaf", 8001)
    assert (settings.router.haproxy_metrics_port, settings.router.ray_metrics_port) == (9101, 9102)
    assert settings.access_log.to == "stdout"
    assert settings.tracing.content is False


@pytest.mark.parametrize("name", ["zoo", "leaf"])
def test_the_tritons_listen_where_the_router_asks(settings_of: Callable[[str], Settings], name: str) -> None:
    triton = getattr(settings_of(f"{name}-cpu"), name)
    assert triton.host == "0.0.0.0"
    assert (triton.http_port, triton.grpc_port, triton.metrics_port) == (8000, 8001, 8002)


def test_every_setting_that_a_service_gives_exists() -> None:
    for profile, name in EVERYWHERE:
        environment = rendered(profile)["services"][name].get("environment", {})
        for variable in environment:
            if variable.startswith("ZOOSERVE_"):
                field, _, inner = variable.removeprefix("ZOOSERVE_").lower().partition("__")
                assert field in Settings.model_fields
                assert not inner or inner in Settings.model_fields[field].annotation.model_fields  # type: ignore[union-attr]


def test_ray_serves_fast_path_is_the_one_that_the_router_sets_itself(tmp_path: Path) -> None:
    from zooserve_router.serve import RayPorts, environment

    own = environment(tmp_path, RayPorts(1, 2, 3, 4), cores=1)
    shown = {name: value for name, value in service("router")["environment"].items() if name.startswith("RAY_")}
    assert {"RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_THROUGHPUT_OPTIMIZED", "RAY_worker_niceness"} <= set(shown)
    assert shown == {name: own[name] for name in shown}


def test_behind_vllm_the_catalogue_differs_in_nothing_but_chat() -> None:
    usual = {model.name: model for model in load_catalogue(ROOT / "zoo.yaml") if model.task != "chat"}
    there = load_catalogue(ROOT / "platform" / "deploy" / "catalogues" / "vllm.yaml")
    assert {model.name: model for model in there if model.task != "chat"} == usual
    (chat,) = there.of_task("chat")
    vllm = service("vllm")
    assert chat.required
    assert chat.chat_backend.url == "http://vllm:8000/v1"
    assert {"--host=0.0.0.0", "--port=8000", f"--served-model-name={chat.chat_backend.model}"} <= set(vllm["command"])
    assert chat.limits.max_tokens <= int(VARIABLES["VLLM_MAX_MODEL_LEN"])
    mounted = {one["target"]: one["source"] for one in service("router-vllm")["configs"]}
    assert mounted["/etc/zooserve/zoo.yaml"] == "catalogue_vllm"


def test_the_leaf_is_of_the_zoos_release_and_its_directory_of_the_containers() -> None:
    """26.03 is the first with the fix of core#466; 26.07 the newest with TensorRT-LLM."""
    year, month = map(int, re.findall(r"\d+", VARIABLES["TRITON_TAG"])[:2])
    assert (year, month) >= (26, 3)
    assert VARIABLES["TRTLLM_TAG"].partition("-")[0] == VARIABLES["TRITON_TAG"].partition("-")[0]
    for name in ("LEAF_REPOSITORY", "LEAF_SHARED_REPOSITORY"):
        folder = ROOT / VARIABLES[name] / "tensorrt_llm"
        assert f"container: {VARIABLES['TRTLLM_TAG']}\n" in (folder / "release.yaml").read_text()
        assert "model: HuggingFaceTB/SmolLM2-135M-Instruct" in (folder / "1" / "model.yaml").read_text()
    assert load_catalogue(ROOT / VARIABLES["CATALOGUE"]).of_task("chat")[0].aliases == ("smollm2-135m-instruct",)


def test_secrets_are_files_that_a_script_makes_once_and_nobody_commits(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"

    def make() -> dict[str, str]:
        subprocess.run(
            ["sh", ROOT / "platform" / "deploy" / "secrets.sh"],
            env={"PATH": os.environ["PATH"], "SECRETS": str(folder)},
            check=True,
            capture_output=True,
        )
        return {file.name: file.read_text() for file in folder.iterdir()}

    made = make()
    wanted = {Path(secret["file"]).relative_to(ROOT / "secrets").name for secret in rendered("gpu")["secrets"].values()}
    assert set(made) == wanted | {"hf_token"} == set(rendered("shared-gpu")["secrets"])
    assert made.pop("hf_token") == ""
    assert all(re.fullmatch("[0-9a-f]{64}", content) for content in made.values())
    assert len(set(made.values())) == len(made)
    # A container's user reads its file, whoever that is; on the host nobody else comes past the folder.
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}
    (folder / "hf_token").write_text("hf_x")
    assert make() == {**made, "hf_token": "hf_x"}
    ignored = subprocess.run(
        ["git", "check-ignore", ".env", "secrets/hf_token"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ignored.stdout.split() == [".env", "secrets/hf_token"]


@pytest.mark.parametrize("line", ["SECRETS=./mine", 'SECRETS="./mine"', "SECRETS=./mine # here"])
def test_the_secrets_folder_is_the_one_that_compose_reads_from_the_variables(tmp_path: Path, line: str) -> None:
    script = tmp_path / "platform" / "deploy" / "secrets.sh"
    script.parent.mkdir(parents=True)
    script.write_bytes((ROOT / "platform" / "deploy" / "secrets.sh").read_bytes())
    (tmp_path / ".env").write_text(f"SECRETS=./other\n{line}\n")
    subprocess.run(["sh", script], cwd="/", env={"PATH": os.environ["PATH"]}, check=True, capture_output=True)
    assert (tmp_path / "mine" / "hf_token").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env", "mine", "platform"]


def test_a_folder_in_the_place_of_a_secret_is_told(tmp_path: Path) -> None:
    (tmp_path / "key_salt").mkdir()
    done = subprocess.run(
        ["sh", ROOT / "platform" / "deploy" / "secrets.sh"],
        env={"PATH": os.environ["PATH"], "SECRETS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "key_salt is a folder, which Docker makes" in done.stderr


def test_no_variable_holds_what_is_a_secret() -> None:
    told = {
        variable
        for profile, name in EVERYWHERE
        for variable in rendered(profile)["services"][name].get("environment", {})
        if re.search(r"PASSWORD|TOKEN|SALT|API_KEY", variable)
    }
    assert told == {"GF_SECURITY_ADMIN_PASSWORD__FILE", "HF_TOKEN_PATH", "ZOOSERVE_KEY_SALT_FILE"}


def test_qdrants_key_reaches_qdrant_and_prometheus() -> None:
    for name in ("qdrant", "prometheus"):
        assert [secret["source"] for secret in service(name)["secrets"]] == ["qdrant_api_key"]
    scraped = (ROOT / "observability" / "prometheus" / "prometheus.yml").read_text()
    assert "credentials_file: /run/secrets/qdrant_api_key" in scraped


@pytest.mark.parametrize(("key", "started"), [("s3cret\n", "s3cret"), ("", "")])
def test_qdrant_starts_with_the_secret_as_its_key_and_not_without_one(tmp_path: Path, key: str, started: str) -> None:
    (tmp_path / "key").write_text(key)
    entrypoint = tmp_path / "entrypoint.sh"
    entrypoint.write_text('#!/usr/bin/env bash\necho "$QDRANT__SERVICE__API_KEY"\n')
    entrypoint.chmod(0o755)
    *shell, script = service("qdrant")["entrypoint"]
    script = script.replace("$$", "$").replace("/run/secrets/qdrant_api_key", str(tmp_path / "key"))
    done = subprocess.run([*shell, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == started
    assert (done.returncode == 0) is bool(started)
    assert bool(started) or "qdrant_api_key is empty" in done.stderr


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_qdrants_health_check_reads_the_status(status: int, healthy: bool) -> None:
    kind, *command, script = service("qdrant")["healthcheck"]["test"]
    asked: list[Any] = []
    done = against(6333, [*command[1:], script], status, b"", asked)
    assert (kind, command) == ("CMD", ["bash", "-c"])
    assert asked == ["/readyz"]
    assert (done.returncode == 0) is healthy


def test_what_qdrant_keeps_and_what_restores_it_are_volumes_of_their_own() -> None:
    qdrant = service("qdrant")
    targets = {mount["target"]: mount["source"] for mount in qdrant["volumes"]}
    assert targets == {"/qdrant/storage": "qdrant", "/qdrant/snapshots": "qdrant-snapshots"}
    assert qdrant["environment"]["QDRANT__STORAGE__SNAPSHOTS_PATH"] == "/qdrant/snapshots"
    assert qdrant["environment"]["QDRANT_INIT_FILE_PATH"].startswith("/qdrant/storage/")


def test_qdrants_tag_is_pinned_and_fits_the_client() -> None:
    tag = re.fullmatch(r"v(\d+)\.(\d+)\.\d+-unprivileged", VARIABLES["QDRANT_TAG"])
    assert tag is not None
    runtime = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["runtime"]
    (client,) = (found for found in (re.match(r"qdrant-client==(\d+)\.(\d+)\.", pin) for pin in runtime) if found)
    assert tag[1] == client[1]
    assert abs(int(tag[2]) - int(client[2])) <= 1


def test_engines_are_put_in_place_before_the_zoo_that_serves_them() -> None:
    services = rendered("gpu", "platform/deploy/compose.plan.yml")["services"]
    assert services["zoo"]["depends_on"]["engines"]["condition"] == "service_completed_successfully"
    engines = services["engines"]
    assert engines["image"] == services["zoo"]["image"]
    assert "build" not in engines
    program, verb, *flags = [*engines["entrypoint"][1:], *engines["command"]][1:]
    told = subprocess.run([sys.executable, "-m", program, verb, "--help"], capture_output=True, text=True, check=True)
    assert flags
    assert all(flag.partition("=")[0] in told.stdout for flag in flags)
    assert engines["healthcheck"]["disable"] is True
    (models,) = (mount for mount in engines["volumes"] if mount["target"] == "/models")
    assert not models.get("read_only")
