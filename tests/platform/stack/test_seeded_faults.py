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
    Seed("a restart that is none", "engine-value", COMPOSE, "  restart: unless-stopped", "  restart: unless-stoped"),
    Seed("a capability that is none", "engine-value", COMPOSE, "  cap_drop: [ALL]", "  cap_drop: [AL]"),
    Seed("a security option that is none", "engine-value", COMPOSE, "no-new-privileges:true", "no-new-privilege:true"),
    Seed("a limit that is none", "engine-value", COMPOSE, "  ulimits: { memlock: -1,", "  ulimits: { memlok: -1,"),
    Seed("a log driver that is none", "engine-value", COMPOSE, "  driver: json-file", "  driver: json-fil"),
    Seed("a mount's option that is passed over", "engine-value", COMPOSE, '["./model_repository:/models:ro", "engine', '["./model_repository:/models:r0", "engine', at='  volumes: ["./model_repository:/models:r0"'),
    Seed("a tmpfs of no size", "engine-value", COMPOSE, "mode=1777,size=16g", "mode=1777,siz=16g", at='  tmpfs: ["/tmp:exec,mode=1777,siz=16g"]'),
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
    Seed("an image that nobody builds", "image-misspelt", COMPOSE, "    <<: [*platform-image, *confined]\n    profiles: [cpu]\n    command: [zooserve, triton, zoo]", "    <<: [*platform-image, *confined]\n    image: zooserve/rooter:${ZOOSERVE_TAG}\n    profiles: [cpu]\n    command: [zooserve, triton, zoo]", at="    image: zooserve/rooter", profile="cpu"),
    Seed("a base that nobody recorded", "record-outdated", EXAMPLE, "TRITON_TAG=26.07-py3", "TRITON_TAG=25.01-py3", at="  build: { context: ., dockerfile: ensembles/", told_in=COMPOSE),
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
    # Data
    Seed("a volume that is missing", "data-not-kept", COMPOSE, '    volumes: ["tempo:/var/tempo"]\n', "", at="  tempo:\n"),
    Seed("a volume elsewhere", "data-not-kept", COMPOSE, '"prometheus:/prometheus"', '"prometheus:/promethus"', at="  prometheus:\n"),
    Seed("a path of Tempo elsewhere", "data-not-kept", TEMPO, "/var/tempo/wal", "/var/temp/wal", at="  tempo:\n", told_in=COMPOSE),
    Seed("a flag's folder elsewhere", "data-not-kept", COMPOSE, "--storage.tsdb.path=/prometheus", "--storage.tsdb.path=/promethus", at="  prometheus:\n"),
    Seed("Grafana's volume", "data-not-kept", COMPOSE, "      - grafana:/var/lib/grafana\n", "", at="  grafana:\n"),
    Seed("Qdrant's volume", "data-not-kept", COMPOSE, '"qdrant:/qdrant/storage"', '"qdrant:/qdrant/storag"', at="  qdrant:\n"),
    Seed("a state that cannot be written", "not-writable", COMPOSE, "/var/lib/zooserve:mode", "/var/lib/zoosrve:mode", at="  ZOOSERVE_STATE_DIR"),
    Seed("a home that is nowhere", "not-writable", COMPOSE, "    HF_HOME: /hub", "    HF_HOME: /hubs"),
    Seed("a cache of engines elsewhere", "not-writable", COMPOSE, "engine-cache:/var/cache/zooserve", "engine-cache:/var/cache/zoo", at="      - tritonserver"),
    Seed("vLLM's home elsewhere", "not-writable", COMPOSE, "vllm-home:/home/vllm", "vllm-home:/home/vlm", at="    entrypoint: [vllm, serve]", profile="vllm"),
    Seed("no scratch", "not-writable", COMPOSE, '["/tmp:exec,mode=1777,size=2g", "/var', '["/tmpp:exec,mode=1777,size=2g", "/var', at="  command: [zooserve, route]"),
    # Environment
    Seed("a setting misspelt", "unknown-setting", COMPOSE, ROUTER_ENV, in_router("ZOOSERVE_TRACING__CONTENTS: true"), at="  ZOOSERVE_TRACING__CONTENTS"),
    Seed("a setting's bad value", "bad-setting", EXAMPLE, "ROUTER_REPLICAS=1", "ROUTER_REPLICAS=none", at="  ZOOSERVE_ROUTER__REPLICAS", told_in=COMPOSE),
    Seed("a port that is none", "bad-setting", COMPOSE, 'RAY_METRICS_PORT: "9102"', 'RAY_METRICS_PORT: "910200"'),
    Seed("Grafana's variable", "unknown-environment", COMPOSE, "GF_USERS_ALLOW_SIGN_UP", "GF_USERS_ALLOW_SIGNUP"),
    Seed("Qdrant's variable", "unknown-environment", COMPOSE, "QDRANT__STORAGE__SNAPSHOTS_PATH", "QDRANT__STORAGE__SNAPSHOT_PATH"),
    Seed("a prefix of ours", "unknown-environment", COMPOSE, "  ZOOSERVE_PORT:", "  ZOOSERE_PORT:"),
    Seed("Grafana's prefix", "unknown-environment", COMPOSE, "GF_USERS_ALLOW", "FG_USERS_ALLOW"),
    Seed("Ray's variable", "unknown-environment", COMPOSE, "RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_ENABLE_HAPROXY"),
    Seed("the Hub's variable", "unknown-environment", COMPOSE, "    HF_TOKEN_PATH", "    HF_TOKEN_PAHT", at="    HF_TOKEN_PAHT"),
    Seed("a script's variable", "unknown-environment", COMPOSE, "export QDRANT__SERVICE__API_KEY=", "export QDRANT__SERVICE__API_KY="),
    # Programs
    Seed("our command misspelt", "unknown-program", COMPOSE, "[zooserve, route]", "[zoosrve, route]"),
    Seed("Triton misspelt", "unknown-program", COMPOSE, "      - tritonserver\n", "      - tritonservr\n"),
    Seed("vLLM's command misspelt", "unknown-program", COMPOSE, "entrypoint: [vllm, serve]", "entrypoint: [vllm, serv]", profile="vllm"),
    Seed("a script that is not there", "unknown-program", EXAMPLE, "LEAF_REPOSITORY=./model_repository/trtllm/smollm2_135m\n", "LEAF_REPOSITORY=./model_repository/trtllm\n", at="  command: [sh, /models/leaf", told_in=COMPOSE),
    Seed("a health check's module", "unknown-program", COMPOSE, "zooserve.health, router, embed", "zooserve.helth, router, embed"),
    Seed("a health check's program", "unknown-program", COMPOSE, "test: [CMD, promtool,", "test: [CMD, promtol,"),
    Seed("vLLM's command alone", "unknown-program", COMPOSE, "entrypoint: [vllm, serve]", "entrypoint: [serve]", profile="vllm"),
    Seed("no program", "unknown-program", COMPOSE, "[zooserve, fetch, --verify]", "[fetch, --verify]"),
    Seed("a health check of no program", "health-form", COMPOSE, "test: [CMD, python3, -m, zooserve.health, router", "test: [CMD, -m, zooserve.health, router"),
    Seed("a health check without CMD", "health-form", COMPOSE, "test: [CMD, curl,", "test: [curl,"),
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
    Seed("a feature that is passed over", "flag-value", COMPOSE, "--enable-feature=exemplar-storage", "--enable-feature=exemplar-storag"),
    Seed("Grafana's variable of a section", "unknown-environment", COMPOSE, "GF_AUTH_ANONYMOUS_ENABLED", "GF_AUTH_ANONYMUS_ENABLED"),
    Seed("a health check's command", "unknown-program", COMPOSE, "promtool, check, ready", "promtool, chek, ready"),
    Seed("no repository", "flag-value", COMPOSE, "      - --model-repository=/models/zoo\n", "", at="      - tritonserver"),
    Seed("a mode that Triton lacks", "flag-value", COMPOSE, "--model-control-mode=explicit", "--model-control-mode=explict"),
    Seed("a setting of traces", "flag-value", COMPOSE, "--trace-config=mode=opentelemetry", "--trace-config=mode=opentelemtry"),
    Seed("a setting of metrics", "flag-value", COMPOSE, "--metrics-config=summary_latencies=true", "--metrics-config=summary_latency=true"),
    Seed("a retention that is none", "flag-value", EXAMPLE, "PROMETHEUS_RETENTION=15d", "PROMETHEUS_RETENTION=15days", at="      - --storage.tsdb.retention.time", told_in=COMPOSE),
    Seed("a repository without models", "path-not-mounted", COMPOSE, "--model-repository=/models/zoo", "--model-repository=/models"),
    # Configurations
    Seed("a configuration that is no YAML", "config-unreadable", PROMETHEUS, "scrape_configs:", "scrape_configs: [", at="- job_name: "),
    Seed("a configuration elsewhere", "config-not-mounted", COMPOSE, "--config.file=/etc/prometheus/prometheus.yml", "--config.file=/etc/prometheus/prom.yml"),
    Seed("a configuration's variable", "config-variable", COMPOSE, "TEMPO_URL: ", "TEMPO_URI: ", at="${TEMPO_URL}", told_in=SOURCES),
    Seed("a variable with a default", "config-variable", COLLECTOR, "${env:ZOOSERVE_TRACING__CONTENT:-false}", "${env:ZOOSERVE_TRACING_CONTENT:-false}"),
    Seed("a scrape's key", "config-unknown-key", PROMETHEUS, "  - job_name: zoo\n    dns_sd_configs:", "  - job_name: zoo\n    dns_sd_config:", at="    dns_sd_config:"),
    Seed("a scrape's time", "config-value", PROMETHEUS, "  scrape_interval: 15s", "  scrape_interval: 15"),
    Seed("a kind of record", "config-value", PROMETHEUS, "names: [qdrant], type: A,", "names: [qdrant], type: B,"),
    # Published ports
    Seed("a port that is none", "port-shape", EXAMPLE, "GRAFANA_PUBLISHED=127.0.0.1:3000", "GRAFANA_PUBLISHED=127.0.0.1:grafana", at='ports: ["${GRAFANA_PUBLISHED}', told_in=COMPOSE),
    Seed("another port than is listened on", "published-port", COMPOSE, "${ROUTER_PUBLISHED}:8000", "${ROUTER_PUBLISHED}:8080"),
    Seed("the router listens elsewhere", "published-port", COMPOSE, 'ZOOSERVE_PORT: "8000"', 'ZOOSERVE_PORT: "8001"', at="  ports: ["),
    Seed("Grafana listens elsewhere", "published-port", COMPOSE, "      GF_USERS_ALLOW", '      GF_SERVER_HTTP_PORT: "3001"\n      GF_USERS_ALLOW', at='    ports: ["${GRAFANA'),
    Seed("the router listens for itself", "published-local", COMPOSE, "ZOOSERVE_HOST: 0.0.0.0", "ZOOSERVE_HOST: 127.0.0.1", at="  ports: ["),
    Seed("two on one port", "port-taken", EXAMPLE, "GRAFANA_PUBLISHED=127.0.0.1:3000", "GRAFANA_PUBLISHED=127.0.0.1:8000", at='ports: ["${GRAFANA_PUBLISHED}', told_in=COMPOSE),
    Seed("Qdrant open to all", "published-to-all", COMPOSE, "    networks: [vectors]\n", '    networks: [vectors]\n    ports: ["6333:6333"]\n', at='    ports: ["6333'),
    Seed("published where nobody comes in", "published-inside", COMPOSE, "    networks: [telemetry, front]", "    networks: [telemetry]", at='    ports: ["${GRAFANA'),
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
    Seed("an alias that another has", "name-taken", COMPOSE, "inside: { aliases: [leaf] }, egress: {} } # egress", "inside: { aliases: [zoo] }, egress: {} } # egress"),
    Seed("gRPC scraped for metrics", "other-protocol", PROMETHEUS, "names: [zoo], type: A, port: 8002", "names: [zoo], type: A, port: 8001"),
    Seed("spans over HTTP to gRPC", "other-protocol", COMPOSE, "  ZOOSERVE_TRACING__ENDPOINT: http://collector:4318", "  ZOOSERVE_TRACING__ENDPOINT: http://collector:4317"),
    Seed("gRPC asked at the metrics", "other-protocol", COMPOSE, 'ZOOSERVE_LEAF__HOST: leaf\n      ZOOSERVE_LEAF__GRPC_PORT: "8001"', 'ZOOSERVE_LEAF__HOST: leaf\n      ZOOSERVE_LEAF__GRPC_PORT: "8002"', at='      ZOOSERVE_LEAF__GRPC_PORT: "8002"'),
    Seed("Grafana asks gRPC", "other-protocol", COMPOSE, "TEMPO_URL: http://tempo:3200", "TEMPO_URL: http://tempo:9095"),
    Seed("the Collector sends to nobody", "unknown-service", COLLECTOR, "endpoint: tempo:4317", "endpoint: traces:4317"),
    Seed("a receiver that is gone", "unheard-port", COLLECTOR, "      http:\n        endpoint: 0.0.0.0:4318\n        max_request_body_size: 16777216 # 16 MiB, also inflated; a larger one is refused\n", "", at="  ZOOSERVE_TRACING__ENDPOINT", told_in=COMPOSE),
    Seed("the Collector's own page elsewhere", "unheard-port", COLLECTOR, "                port: 8888", "                port: 8887", at="port: 8888", told_in=PROMETHEUS),
    Seed("a page of the Collector", "unknown-page", COMPOSE, "url=http://collector:4318/v1/traces", "url=http://collector:4318/v1/trace"),
    Seed("a page of a health check", "unknown-page", COMPOSE, "127.0.0.1:3000/api/health", "127.0.0.1:3000/api/helth"),
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
    Seed("a password in clear", "secret-in-clear", COMPOSE, "GF_SECURITY_ADMIN_PASSWORD__FILE: /run/secrets/grafana_admin_password", "GF_SECURITY_ADMIN_PASSWORD: hunter2", at="GF_SECURITY_ADMIN_PASSWORD: hunter2"),
    Seed("a key in clear", "secret-in-clear", COMPOSE, '      QDRANT__TELEMETRY_DISABLED: "true"', "      QDRANT__SERVICE__API_KEY: hunter2", at="QDRANT__SERVICE__API_KEY: hunter2"),
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
    Seed("a secret that nothing reads", "grant-unread", COMPOSE, "  ZOOSERVE_KEY_SALT_FILE: /run/secrets/key_salt\n", "", at="  secrets: [key_salt]"),
    Seed("a repository that nothing reads", "grant-unread", COMPOSE, "  ZOOSERVE_WEIGHTS_LOCK: /etc/zooserve/weights.lock\n  ZOOSERVE_REPOSITORY: /models\n", "  ZOOSERVE_WEIGHTS_LOCK: /etc/zooserve/weights.lock\n", at='  volumes: ["./model_repository:/models:ro"]\n  tmpfs: *scratch'),
    Seed("a catalogue that nothing reads", "grant-unread", COMPOSE, "  ZOOSERVE_CATALOGUE: /etc/zooserve/zoo.yaml\n  ZOOSERVE_WEIGHTS", "  ZOOSERVE_WEIGHTS", at="      - { source: catalogue, target"),
    Seed("a secret's folder misspelt", "setting-not-mounted", COMPOSE, "    HF_TOKEN_PATH: /run/secrets/", "    HF_TOKEN_PATH: /run/secret/"),
    Seed("a dashboard's file misspelt", "setting-not-mounted", COMPOSE, "zooserve/overview.json", "zooserve/overviews.json"),
    # Models
    Seed("a variant misspelt", "unknown-variant", EXAMPLE, "ZOO_VARIANT=gpu", "ZOO_VARIANT=gpus", at="      - --model-config-name=${ZOO_VARIANT}", told_in=COMPOSE),
    Seed("a health check of no model", "unknown-model", EXAMPLE, "ZOO_HEALTH_MODELS=embed", "ZOO_HEALTH_MODELS=embde", at="  test: [CMD, python3, -m, zooserve.health, --end-after=8, zoo", told_in=COMPOSE),
    Seed("a model that the catalogue lacks", "unknown-model", EXAMPLE, "ZOOSERVE_MODELS=default", "ZOOSERVE_MODELS=default,rerankk", at="  ZOOSERVE_MODELS: $", told_in=COMPOSE),
    Seed("a router asked for no model", "unknown-model", COMPOSE, "zooserve.health, router, embed", "zooserve.health, router, embde"),
    Seed("vLLM serves another name", "unknown-model", COMPOSE, "--served-model-name=chat", "--served-model-name=chats", at="      model: chat", told_in="platform/deploy/catalogues/vllm.yaml", profile="vllm"),
    Seed("the catalogue of another profile", "unknown-model", COMPOSE, "{ file: ./platform/deploy/catalogues/vllm.yaml }", "{ file: ./zoo.yaml }", at="  ZOOSERVE_CATALOGUE: /etc", profile="vllm"),
    Seed("vLLM takes fewer tokens", "unknown-model", EXAMPLE, "VLLM_MAX_MODEL_LEN=2048", "VLLM_MAX_MODEL_LEN=1024", at="      - --max-model-len", told_in=COMPOSE, profile="vllm"),
    Seed("a catalogue that is refused", "catalogue-refused", "platform/deploy/catalogues/vllm.yaml", "    task: rerank\n", "    task: rerankk\n", profile="vllm"),
    Seed("the health check of another", "health-of-another", COMPOSE, "zooserve.health, router, embed", "zooserve.health, zoo, embed"),
    # Prometheus
    Seed("no rules", "rule-files", PROMETHEUS, "rules/*.yml", "rule/*.yml"),
    Seed("a key that is not mounted", "credentials-file", PROMETHEUS, "/run/secrets/qdrant_api_key", "/run/secrets/qdrant_key"),
    Seed("a job twice", "scrape-job", PROMETHEUS, "job_name: leaf\n", "job_name: zoo # again\n"),
    Seed("a record that services have none of", "scrape-job", PROMETHEUS, "names: [qdrant], type: A, port", "names: [qdrant], port"),
    Seed("two jobs at one port", "scrape-job", PROMETHEUS, "names: [collector], type: A, port: 8888", "names: [collector], type: A, port: 8889", at="names: [collector], type: A, port: 8889, refresh_interval: 15s }]\n\n  - job_name: tempo"),
    Seed("a job that rules ask for", "job-unscraped", PROMETHEUS, "  - job_name: zoo\n", "  - job_name: zo\n", at='job="zoo"', told_in="observability/prometheus/rules/zoo.yml"),
    Seed("a page that nobody has", "scrape-job", PROMETHEUS, "  - job_name: zoo\n", "  - job_name: zoo\n    metrics_path: /metric\n", at="    metrics_path"),
    # Collector
    Seed("an attribute that no span has", "collector-misspelt", COLLECTOR, "key: zooserve.outcome", "key: zooserve.outcme"),
    Seed("a function of statements", "collector-misspelt", COLLECTOR, "delete_key(attributes", "delte_key(attributes"),
    # Grafana
    Seed("a data source that is not provisioned", "unknown-data-source", SOURCES, "    type: prometheus\n", "    type: promethius\n", at='"query": "prometheus"', told_in=CHAT),
    Seed("a dashboard that names another", "grafana-datasource", CHAT, '"uid": "${datasource}"', '"uid": "promethius"'),
    Seed("a data source that is named by another", "grafana-datasource", SOURCES, "datasourceUid: prometheus", "datasourceUid: promethius"),
    Seed("dashboards that nobody provides", "dashboards-not-mounted", COMPOSE, "      - ./observability/grafana/provisioning:/etc/grafana/provisioning:ro\n", "", at="  grafana:\n"),
    Seed("dashboards elsewhere", "dashboards-not-mounted", BOARDS, "path: /etc/grafana/dashboards/zooserve", "path: /etc/grafana/dashboards/zoo"),
    Seed("a broken dashboard", "dashboard-unreadable", CHAT, "{", "{,"),
    Seed("a data source that leads to another program", "grafana-datasource", COMPOSE, "PROMETHEUS_URL: http://prometheus:9090", "PROMETHEUS_URL: http://tempo:3200"),
    Seed("a data source without an address", "grafana-datasource", SOURCES, "    url: ${TEMPO_URL}\n", "", at="  - name: Tempo"),
    Seed("a driver that is none", "gpu-reservation", COMPOSE, "driver: nvidia, device_ids", "driver: nvidai, device_ids", at='    deploy: { resources: { reservations: { devices: [{ driver: nvidai'),
    Seed("an index that is none", "gpu-reservation", EXAMPLE, "ZOO_GPU=0", "ZOO_GPU=first", at='device_ids: ["${ZOO_GPU}"]', told_in=COMPOSE),
    # GPUs
    Seed("no GPU", "gpu-missing", COMPOSE, 'deploy: { resources: { reservations: { devices: [{ driver: nvidia, device_ids: ["${ZOO_GPU}"], capabilities: [gpu] }] } } }', "deploy: {}", at="  zoo:\n"),
    Seed("no GPU for TensorRT-LLM", "gpu-missing", COMPOSE, 'deploy: { resources: { reservations: { devices: [{ driver: nvidia, device_ids: ["${LEAF_GPU}"], capabilities: [gpu] }] } } }', "deploy: {}", at="  leaf:\n"),
    Seed("no GPU behind a script", "gpu-missing", COMPOSE, '    networks: { inside: { aliases: [leaf] }, egress: {} }\n    deploy: { resources: { reservations: { devices: [{ driver: nvidia, device_ids: ["${SHARED_GPU}"], capabilities: [gpu] }] } } }\n', "    networks: { inside: { aliases: [leaf] }, egress: {} }\n", at="  leaf-shared:\n", profile="shared-gpu"),
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
