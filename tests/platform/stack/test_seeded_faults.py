# ruff: noqa: E501  a table: one fault a line
"""Every fault that is put into a copy of the committed stack is found: its rule, its file, its line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from zooserve_cli.stack import telemetry
from zooserve_cli.stack.inspection import ALL_RULES, check_stack

COMPOSE = "docker-compose.yml"
EXAMPLE = ".env.example"
PROMETHEUS = "observability/prometheus/prometheus.yml"
COLLECTOR = "observability/otel/collector.yaml"
TEMPO = "observability/tempo/tempo.yaml"
SOURCES = "observability/grafana/provisioning/datasources/zooserve.yaml"
CHAT = "observability/grafana/dashboards/chat.json"
BOARDS = "observability/grafana/provisioning/dashboards/zooserve.yaml"


@dataclass(frozen=True)
class Seed:
    """A fault: what is replaced by what, and where it is to be told."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    at: str = ""
    """The text at which it is told; the new one's first line if left out."""
    told_in: str = ""
    """The file, where it is another one."""
    profile: str = "gpu"


ROUTER_ENV = "  ZOOSERVE_TRACING__CONTENT: ${TRACE_CONTENT}\n"


def in_router(line: str) -> str:
    return f"{ROUTER_ENV}  {line}\n"


SEEDS = [
    # The compose file itself
    Seed("no YAML", "compose-unreadable", COMPOSE, "name: zooserve", "name: [zooserve", at="\nx-logs"),
    Seed("a key twice", "compose-unreadable", COMPOSE, "name: zooserve", "name: zooserve\nname: other", at="name: other"),
    Seed("a shape", "compose-shape", COMPOSE, "    networks: [telemetry]\n", "    networks: telemetry\n"),
    Seed("no image", "compose-shape", COMPOSE, "    image: grafana/tempo:${TEMPO_TAG}\n", "", at="  tempo:\n"),
    Seed("a key misspelt", "unknown-key", COMPOSE, "    stop_grace_period: 30s", "    stop_grace_time: 30s"),
    Seed("a key of a health check misspelt", "unknown-key", COMPOSE, "  start_period: 600s", "  start_periode: 600s"),
    Seed("a size that is none", "compose-value", EXAMPLE, "ROUTER_MEMORY=8g", "ROUTER_MEMORY=8 gigs", at="  mem_limit: ${ROUTER_MEMORY}", told_in=COMPOSE),
    Seed("a time that is none", "compose-value", COMPOSE, "stop_grace_period: 150s", "stop_grace_period: soon"),
    Seed("a dollar", "interpolation", COMPOSE, "${QDRANT_MEMORY}", "${QDRANT_MEMORY", at="mem_limit: ${QDRANT_MEMORY"),
    Seed("extends nobody", "extends", COMPOSE, "  grafana:\n", "  grafana:\n    extends: { service: grafan }\n", at="    extends"),
    Seed("extends a file that is not there", "extends", COMPOSE, "  grafana:\n", "  grafana:\n    extends: { file: o.yml, service: a }\n", at="    extends"),
    Seed("an include", "not-followed", COMPOSE, "name: zooserve\n", "name: zooserve\ninclude: [other.yml]\n", at="include:"),
    # Variables
    Seed("an env line", "env-line", EXAMPLE, "ZOO_GPU=0", "ZOO_GPU 0"),
    Seed("set twice", "variable-twice", EXAMPLE, "ZOO_GPU=0", "ZOO_GPU=0\nZOO_GPU=2", at="ZOO_GPU=0"),
    Seed("a misspelt variable", "variable-undocumented", COMPOSE, "${TEMPO_TAG}", "${TEMPO_TGA}", at="image: grafana/tempo:"),
    Seed("no comment", "variable-unexplained", EXAMPLE, "# The one card of the profile shared-gpu.\nSHARED_GPU=", "\nSHARED_GPU=", at="SHARED_GPU="),
    Seed("read by nothing", "variable-unused", EXAMPLE, "ZOO_GPU=0", "ZOO_GPU=0\nZOO_GPUS=0", at="ZOO_GPUS=0"),
    Seed("not set", "variable-missing", EXAMPLE, "QDRANT_MEMORY=8g\n", "", at="mem_limit: ${QDRANT_MEMORY}", told_in=COMPOSE),
    Seed("set to nothing", "variable-empty", EXAMPLE, "QDRANT_MEMORY=8g\n", "QDRANT_MEMORY=\n"),
    Seed("no such profile", "unknown-profile", EXAMPLE, "COMPOSE_PROFILES=gpu", "COMPOSE_PROFILES=gpus"),
    Seed("Compose's own misspelt", "variable-unused", EXAMPLE, "COMPOSE_PROFILES=gpu", "COMPOSE_PROFILE=gpu"),
    # Images
    Seed("no tag", "unpinned-image", COMPOSE, "grafana/tempo:${TEMPO_TAG}", "grafana/tempo"),
    Seed("latest", "unpinned-image", EXAMPLE, "TEMPO_TAG=2.10.8", "TEMPO_TAG=latest", at="image: grafana/tempo:", told_in=COMPOSE),
    Seed("a tag that is empty", "unpinned-image", EXAMPLE, "TEMPO_TAG=2.10.8", "TEMPO_TAG=", at="image: grafana/tempo:", told_in=COMPOSE),
    Seed("a base that floats", "unpinned-image", COMPOSE, 'TRITON_TAG: "${TRITON_TAG}"', "TRITON_TAG: latest", at="FROM nvcr.io", told_in="ensembles/Dockerfile"),
    Seed("an image misspelt", "image-misspelt", COMPOSE, "grafana/grafana:", "grafana/grafna:"),
    Seed("no image's name", "image-reference", COMPOSE, "grafana/tempo:${TEMPO_TAG}", "Grafana Tempo:${TEMPO_TAG}"),
    Seed("no such context", "build-context", COMPOSE, "context: ., dockerfile: ensembles/", "context: ./nowhere, dockerfile: ensembles/", at="  build: { context: ./nowhere"),
    Seed("no container file", "build-context", COMPOSE, "dockerfile: ensembles/Dockerfile", "dockerfile: ensembles/Containerfile"),
    Seed("an argument misspelt", "build-argument", COMPOSE, 'TRITON_TAG: "$', 'TRITON_TAGS: "$'),
    Seed("no such stage", "build-target", COMPOSE, "dockerfile: ensembles/Dockerfile,", "dockerfile: ensembles/Dockerfile, target: nobody,"),
    Seed("a tag that nobody recorded", "record-outdated", EXAMPLE, "TEMPO_TAG=2.10.8", "TEMPO_TAG=2.99.0", at="image: grafana/tempo:", told_in=COMPOSE),
    # Names
    Seed("an undeclared volume", "undeclared", COMPOSE, 'volumes: ["tempo:/var/tempo"]', 'volumes: ["tempos:/var/tempo"]'),
    Seed("a missing volume", "undeclared", COMPOSE, "  tempo: {}\n", "", at='    volumes: ["tempo:/var/tempo"]'),
    Seed("an undeclared network", "undeclared", COMPOSE, "networks: [telemetry, front]", "networks: [telemetry, fronts]"),
    Seed("an absent secret", "undeclared", COMPOSE, '  key_salt: { file: "${SECRETS}/key_salt" }\n', "", at="  secrets: [key_salt]"),
    Seed("an undeclared configuration", "undeclared", COMPOSE, "source: collector,", "source: collectors,"),
    Seed("an unused volume", "unused", COMPOSE, "  tempo: {}\n", "  tempo: {}\n  nobody: {}\n", at="  nobody: {}"),
    Seed("an unused secret", "unused", COMPOSE, "secrets: [grafana_admin_password]", "secrets: []", at="  grafana_admin_password: {"),
    # Files
    Seed("a mount of nothing", "mount-missing", COMPOSE, "./observability/grafana/dashboards:", "./observability/grafana/boards:"),
    Seed("a mount to nowhere", "mount-target", COMPOSE, '"tempo:/var/tempo"', '"tempo:var/tempo"'),
    Seed("two mounts on one path", "mount-target", COMPOSE, "grafana:/var/lib/grafana", "grafana:/etc/grafana/provisioning"),
    Seed("no such configuration", "config-missing", COMPOSE, "./observability/tempo/tempo.yaml", "./observability/tempo/temp.yaml"),
    Seed("no such env_file", "config-missing", COMPOSE, "  grafana:\n", "  grafana:\n    env_file: grafana.env\n", at="    env_file"),
    # Environment
    Seed("a setting misspelt", "unknown-setting", COMPOSE, ROUTER_ENV, in_router("ZOOSERVE_TRACING__CONTENTS: true"), at="  ZOOSERVE_TRACING__CONTENTS"),
    Seed("a setting's bad value", "bad-setting", EXAMPLE, "ROUTER_REPLICAS=1", "ROUTER_REPLICAS=none", at="  ZOOSERVE_ROUTER__REPLICAS", told_in=COMPOSE),
    Seed("a port that is none", "bad-setting", COMPOSE, 'RAY_METRICS_PORT: "9102"', 'RAY_METRICS_PORT: "910200"'),
    Seed("Grafana's variable", "unknown-environment", COMPOSE, "GF_USERS_ALLOW_SIGN_UP", "GF_USERS_ALLOW_SIGNUP"),
    Seed("Qdrant's variable", "unknown-environment", COMPOSE, "QDRANT__STORAGE__SNAPSHOTS_PATH", "QDRANT__STORAGE__SNAPSHOT_PATH"),
    # Command lines
    Seed("Triton's flag", "unknown-flag", COMPOSE, "--exit-on-error=false", "--exit-on-errors=false"),
    Seed("Prometheus' flag", "unknown-flag", COMPOSE, "--storage.tsdb.path", "--storage.tsdb.paths"),
    Seed("Tempo's flag", "unknown-flag", COMPOSE, "-config.file=/etc/tempo.yaml", "-config.files=/etc/tempo.yaml"),
    Seed("vLLM's flag", "unknown-flag", COMPOSE, "--max-model-len=", "--max-model-length=", profile="vllm"),
    Seed("our flag", "unknown-flag", COMPOSE, "[zooserve, fetch, --verify]", "[zooserve, fetch, --verifi]"),
    Seed("our health check's flag", "unknown-flag", COMPOSE, "zooserve.health, --end-after=8, leaf", "zooserve.health, --end-afer=8, leaf"),
    Seed("our value", "flag-value", COMPOSE, "[zooserve, triton, zoo]", "[zooserve, triton, zoos]", profile="cpu"),
    Seed("our command", "unknown-command", COMPOSE, "[zooserve, fetch, --verify]", "[zooserve, fetsh, --verify]"),
    Seed("a word too many", "unknown-command", COMPOSE, "[zooserve, route]", "[zooserve, route, now]"),
    Seed("a repository that is not mounted", "path-not-mounted", COMPOSE, "--model-repository=/models/zoo", "--model-repository=/model/zoo"),
    # Configurations
    Seed("a configuration that is no YAML", "config-unreadable", PROMETHEUS, "scrape_configs:", "scrape_configs: [", at="- job_name: "),
    Seed("a configuration elsewhere", "config-not-mounted", COMPOSE, "--config.file=/etc/prometheus/prometheus.yml", "--config.file=/etc/prometheus/prom.yml"),
    Seed("a configuration's variable", "config-variable", COMPOSE, "TEMPO_URL: ", "TEMPO_URI: ", at="${TEMPO_URL}", told_in=SOURCES),
    # Published ports
    Seed("a port that is none", "port-shape", EXAMPLE, "GRAFANA_PUBLISHED=127.0.0.1:3000", "GRAFANA_PUBLISHED=127.0.0.1:grafana", at='ports: ["${GRAFANA_PUBLISHED}', told_in=COMPOSE),
    Seed("another port than is listened on", "published-port", COMPOSE, "${ROUTER_PUBLISHED}:8000", "${ROUTER_PUBLISHED}:8080"),
    Seed("the router listens elsewhere", "published-port", COMPOSE, 'ZOOSERVE_PORT: "8000"', 'ZOOSERVE_PORT: "8001"', at="  ports: ["),
    Seed("Grafana listens elsewhere", "published-port", COMPOSE, "      GF_USERS_ALLOW", '      GF_SERVER_HTTP_PORT: "3001"\n      GF_USERS_ALLOW', at='    ports: ["${GRAFANA'),
    Seed("the router listens for itself", "published-local", COMPOSE, "ZOOSERVE_HOST: 0.0.0.0", "ZOOSERVE_HOST: 127.0.0.1", at="  ports: ["),
    Seed("two on one port", "port-taken", EXAMPLE, "GRAFANA_PUBLISHED=127.0.0.1:3000", "GRAFANA_PUBLISHED=127.0.0.1:8000", at='ports: ["${GRAFANA_PUBLISHED}', told_in=COMPOSE),
    Seed("Qdrant open to all", "published-to-all", COMPOSE, "    networks: [vectors]\n", '    networks: [vectors]\n    ports: ["6333:6333"]\n', at='    ports: ["6333'),
    # Addresses
    Seed("an unknown scrape target", "unknown-service", PROMETHEUS, "names: [qdrant]", "names: [quadrant]"),
    Seed("an unknown service in an URL", "unknown-service", COMPOSE, "TEMPO_URL: http://tempo:", "TEMPO_URL: http://temp0:"),
    Seed("an unknown host in a setting", "unknown-service", COMPOSE, "ZOOSERVE_LEAF__HOST: leaf", "ZOOSERVE_LEAF__HOST: leave"),
    Seed("an unknown host of a flag", "unknown-service", COMPOSE, "url=http://collector:4318", "url=http://colector:4318"),
    Seed("a network that is not shared", "network-not-shared", COMPOSE, "    networks: [telemetry, front]", "    networks: [front]", at="TEMPO_URL:"),
    Seed("Prometheus out of reach", "network-not-shared", COMPOSE, "networks: [inside, telemetry, vectors]", "networks: [inside, telemetry]", at="names: [qdrant]", told_in=PROMETHEUS),
    Seed("a service of another profile", "service-not-started", COMPOSE, "PROMETHEUS_URL: http://prometheus:9090", "PROMETHEUS_URL: http://vllm:8000"),
    Seed("a wrong port in an URL", "unheard-port", COMPOSE, "TEMPO_URL: http://tempo:3200", "TEMPO_URL: http://tempo:3300"),
    Seed("a wrong port in a setting", "unheard-port", COMPOSE, 'ZOOSERVE_LEAF__HOST: leaf\n      ZOOSERVE_LEAF__GRPC_PORT: "8001"', 'ZOOSERVE_LEAF__HOST: leaf\n      ZOOSERVE_LEAF__GRPC_PORT: "8004"', at='      ZOOSERVE_LEAF__GRPC_PORT: "8004"'),
    Seed("a wrong port of a scrape target", "unheard-port", PROMETHEUS, "names: [qdrant], type: A, port: 6333", "names: [qdrant], type: A, port: 6433"),
    Seed("a wrong port in a health check", "unheard-port", COMPOSE, "127.0.0.1/6333", "127.0.0.1/6433"),
    Seed("Triton listens elsewhere", "unheard-port", COMPOSE, "      - --exit-on-error=false\n", "      - --exit-on-error=false\n      - --metrics-port=8004\n", at="names: [zoo]", told_in=PROMETHEUS),
    Seed("the Collector listens for itself", "local-only", COLLECTOR, "0.0.0.0:4318", "127.0.0.1:4318", at="  ZOOSERVE_TRACING__ENDPOINT", told_in=COMPOSE),
    Seed("vLLM listens for itself", "local-only", COMPOSE, "--host=0.0.0.0", "--host=127.0.0.1", at="url: http://vllm:8000", told_in="platform/deploy/catalogues/vllm.yaml", profile="vllm"),
    Seed("an alias misspelt", "unasked-alias", COMPOSE, "aliases: [router]", "aliases: [rooter]", at="  networks: { inside: { aliases: [rooter]", profile="vllm"),
    # Start and health
    Seed("waits for nobody", "unknown-need", COMPOSE, "      prometheus: { condition", "      promotheus: { condition"),
    Seed("waits for what is not a condition", "unknown-need", COMPOSE, "prometheus: { condition: service_healthy }", "prometheus: { condition: healthy }"),
    Seed("waits for another profile's", "need-not-started", COMPOSE, "zoo-cpu: { condition: service_healthy, required: false }", "zoo-cpu: { condition: service_healthy }"),
    Seed("wait for each other", "need-circle", COMPOSE, "    image: grafana/tempo", "    depends_on: [grafana]\n    image: grafana/tempo", at="    depends_on: [grafana]"),
    Seed("waits for a health that nobody asks", "no-healthcheck", COMPOSE, "tempo: { condition: service_started } }", "tempo: { condition: service_healthy } }"),
    Seed("waits for what never ends", "never-completes", COMPOSE, '    restart: "no"', "    restart: always", at="  weights: { condition"),
    Seed("Triton's readiness", "triton-readiness", COMPOSE, "test: [CMD, python3, -m, zooserve.health, --end-after=8, leaf]", 'test: [CMD, curl, -f, "http://localhost:8000/v2/health/ready"]'),
    # Hardening
    Seed("privileged", "privileged", COMPOSE, "  grafana:\n", "  grafana:\n    privileged: true\n", at="    privileged"),
    Seed("a capability", "privileged", COMPOSE, "  grafana:\n", "  grafana:\n    cap_add: [SYS_ADMIN]\n", at="    cap_add"),
    Seed("the host's network", "host-namespace", COMPOSE, "  grafana:\n", "  grafana:\n    pid: host\n", at="    pid: host"),
    Seed("the engine's socket", "engine-socket", COMPOSE, "      - grafana:/var/lib/grafana", "      - /var/run/docker.sock:/var/run/docker.sock\n      - grafana:/var/lib/grafana"),
    Seed("written to for no reason", "writable-root", COMPOSE, "  grafana:\n    <<: *confined\n", "  grafana:\n", at="  grafana:\n"),
    # Paths in containers
    Seed("a secret that is not given", "secret-not-granted", COMPOSE, "    secrets: [grafana_admin_password]\n", "", at="      GF_SECURITY_ADMIN_PASSWORD__FILE"),
    Seed("a script's secret that is not given", "secret-not-granted", COMPOSE, "$$(cat /run/secrets/qdrant_api_key)", "$$(cat /run/secrets/qdrant_key)", at="        export QDRANT"),
    Seed("a configuration's secret that is not given", "secret-not-granted", COMPOSE, "    secrets: [qdrant_api_key] # Qdrant's", "    # Qdrant's", at="/run/secrets/qdrant_api_key", told_in=PROMETHEUS),
    Seed("a secret's file misspelt", "secret-unmade", COMPOSE, "${SECRETS}/key_salt", "${SECRETS}/key_slat"),
    Seed("a catalogue elsewhere", "setting-not-mounted", COMPOSE, "  ZOOSERVE_CATALOGUE: /etc/zooserve/zoo.yaml", "  ZOOSERVE_CATALOGUE: /etc/zooserve/zoo.yml"),
    # Models
    Seed("a variant misspelt", "unknown-variant", EXAMPLE, "ZOO_VARIANT=gpu", "ZOO_VARIANT=gpus", at="      - --model-config-name=${ZOO_VARIANT}", told_in=COMPOSE),
    Seed("a health check of no model", "unknown-model", EXAMPLE, "ZOO_HEALTH_MODELS=embed", "ZOO_HEALTH_MODELS=embde", at="  test: [CMD, python3, -m, zooserve.health, --end-after=8, zoo", told_in=COMPOSE),
    Seed("a model that the catalogue lacks", "unknown-model", EXAMPLE, "ZOOSERVE_MODELS=default", "ZOOSERVE_MODELS=default,rerankk", at="  ZOOSERVE_MODELS: $", told_in=COMPOSE),
    # Prometheus
    Seed("no rules", "rule-files", PROMETHEUS, "rules/*.yml", "rule/*.yml"),
    Seed("a key that is not mounted", "credentials-file", PROMETHEUS, "/run/secrets/qdrant_api_key", "/run/secrets/qdrant_key"),
    Seed("a job twice", "scrape-job", PROMETHEUS, "job_name: leaf\n", "job_name: zoo # again\n"),
    # Grafana
    Seed("a data source that is not provisioned", "unknown-data-source", SOURCES, "    type: prometheus\n", "    type: promethius\n", at='"query": "prometheus"', told_in=CHAT),
    Seed("a dashboard that names another", "grafana-datasource", CHAT, '"uid": "${datasource}"', '"uid": "promethius"'),
    Seed("a data source that is named by another", "grafana-datasource", SOURCES, "datasourceUid: prometheus", "datasourceUid: promethius"),
    Seed("dashboards that nobody provides", "dashboards-not-mounted", COMPOSE, "      - ./observability/grafana/provisioning:/etc/grafana/provisioning:ro\n", "", at="  grafana:\n"),
    Seed("dashboards elsewhere", "dashboards-not-mounted", BOARDS, "path: /etc/grafana/dashboards/zooserve", "path: /etc/grafana/dashboards/zoo"),
    Seed("a broken dashboard", "dashboard-unreadable", CHAT, "{", "{,"),
    # GPUs
    Seed("no GPU", "gpu-missing", COMPOSE, 'deploy: { resources: { reservations: { devices: [{ driver: nvidia, device_ids: ["${ZOO_GPU}"], capabilities: [gpu] }] } } }', "deploy: {}", at="  zoo:\n"),
    Seed("no GPU for TensorRT-LLM", "gpu-missing", COMPOSE, 'deploy: { resources: { reservations: { devices: [{ driver: nvidia, device_ids: ["${LEAF_GPU}"], capabilities: [gpu] }] } } }', "deploy: {}", at="  leaf:\n"),
    Seed("more than the card", "gpu-shares", EXAMPLE, "VLLM_GPU_MEMORY_UTILIZATION=0.90", "VLLM_GPU_MEMORY_UTILIZATION=9", at="      - --gpu-memory-utilization", told_in=COMPOSE, profile="vllm"),
    Seed("no capability", "gpu-reservation", COMPOSE, 'device_ids: ["${ZOO_GPU}"], capabilities: [gpu]', 'device_ids: ["${ZOO_GPU}"], capabilities: [compute]'),
    Seed("the same GPU", "gpu-taken", EXAMPLE, "LEAF_GPU=1", "LEAF_GPU=0", at='device_ids: ["${LEAF_GPU}"]', told_in=COMPOSE),
    Seed("shares above the card", "gpu-shares", EXAMPLE, "SHARED_GPU_BYTES=", "SHARED_GPU_BYTES=1000000000 # ", at="  zoo-shared:\n", told_in=COMPOSE, profile="shared-gpu"),
]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.rule}: {seed.name}".replace(" ", "-"))
def test_a_fault_is_told_where_it_is(seed: Seed, copied: Any) -> None:
    copied.change(seed.file, seed.old, seed.new)
    told_in = seed.told_in or seed.file
    line = copied.line_of(told_in, seed.at.removeprefix("\n") or seed.new.strip("\n"))
    report = check_stack(Path(COMPOSE), Path(EXAMPLE), Path(EXAMPLE), [seed.profile])
    places = {(str(finding.place.file), finding.place.line) for finding in report.findings if finding.rule == seed.rule}
    assert (told_in, line) in places, "\n".join(map(str, report.findings))


def test_every_rule_has_a_fault_that_shows_it() -> None:
    elsewhere = {"secret-absent", "secret-empty", "secret-tracked", "variable-unknown"}  # test_stack_check.py
    own_tests = {rule.name for rule in telemetry.RULES}  # beside the modules of telemetry
    assert {rule.name for rule in ALL_RULES} - own_tests - elsewhere <= {seed.rule for seed in SEEDS}
