"""Compose files in the style of other projects: what is told of them is true, and nothing else is told."""

from pathlib import Path
from typing import Any

import pytest

from zooserve_cli.stack.inspection import check_stack

ADVICE = {"writable-root", "record-outdated", "not-followed"}
"""Warnings that a stranger may expect."""

MONITORING = """
volumes: { prometheus_data: {}, grafana_data: {} }
networks: { monitor-net: { driver: bridge } }
services:
  prometheus:
    image: prom/prometheus:v2.53.1
    container_name: prometheus
    volumes: ["./prometheus:/etc/prometheus", "prometheus_data:/prometheus"]
    command:
      - '--config.file=/etc/prometheus/prometheus.yml'
      - '--storage.tsdb.path=/prometheus'
      - '--web.console.libraries=/etc/prometheus/console_libraries'
      - '--storage.tsdb.retention.time=200h'
      - '--web.enable-lifecycle'
      - --log.level
      - debug
    expose: [9090]
    networks: [monitor-net]
  nodeexporter:
    image: prom/node-exporter:v1.8.1
    volumes: ["/proc:/host/proc:ro", "/:/rootfs:ro,rslave"]
    command: ['--path.procfs=/host/proc', '--collector.filesystem.mount-points-exclude=^/(sys|proc)($$|/)']
    networks: [monitor-net]
  grafana:
    image: grafana/grafana:11.1.0
    volumes: ["grafana_data:/var/lib/grafana", "./grafana:/etc/grafana/provisioning"]
    environment: ["GF_SECURITY_ADMIN_USER=${ADMIN_USER:-admin}", GF_USERS_ALLOW_SIGN_UP=false]
    ports: ["3000:3000"]
    networks: [monitor-net]
"""
PROMETHEUS = """
global:
  scrape_interval:     15s
  external_labels:
      monitor: 'docker-host-alpha'
rule_files:
scrape_configs:
  - job_name: 'nodeexporter'
    static_configs:
      - targets: ['nodeexporter:9100']
        labels: { zone: eu, n: 1 }
  - job_name: 'prometheus'
    static_configs: [{ targets: ['localhost:9090'] }]
  - job_name: probes
    metrics_path: /probe
    params: { module: [http_2xx] }
    file_sd_configs: [{ files: ["/etc/prometheus/sd/*.json"] }]
    relabel_configs:
      - { source_labels: [__address__], target_label: __param_target }
      - { target_label: __address__, replacement: "nodeexporter:9115" }
"""
SOURCES = """
apiVersion: 1
datasources:
  - { name: Prometheus, type: prometheus, uid: p, access: proxy, url: http://prometheus:9090, isDefault: true }
"""
SPANS = """
services:
  cart:
    image: ghcr.io/demo:1.11.1-cart
    environment:
      - PORT=${CART_PORT:-7070}
      - OTEL_EXPORTER_OTLP_ENDPOINT=http://${OTEL_HOST:-collector}:4317
    depends_on: { collector: { condition: service_started, restart: true } }
    logging: { driver: json-file, options: { max-size: "5m" } }
  jaeger:
    image: jaegertracing/all-in-one:1.60
    command: ["--memory.max-traces=5000", "--prometheus.server-url=http://prometheus:9090"]
    ports: ["16686", "4317"]
  collector:
    image: otel/opentelemetry-collector-contrib:0.156.0
    command: ["--config=/etc/otelcol-config.yml"]
    volumes: ["./collector.yml:/etc/otelcol-config.yml"]
    ports: ["127.0.0.1:4317:4317", "127.0.0.1:4318:4318"]
  prometheus:
    image: quay.io/prometheus/prometheus:v3.5.0
    command: [--config.file=/etc/prometheus/p.yaml, --storage.tsdb.path=/prometheus, --web.enable-otlp-receiver]
    volumes: ["./p.yml:/etc/prometheus/p.yaml", "/prometheus"]
"""
COLLECTOR = """
receivers: { otlp: { protocols: { grpc: { endpoint: "0.0.0.0:4317" }, http: { endpoint: "0.0.0.0:4318" } } } }
exporters:
  debug:
  otlp_http/prometheus: { endpoint: "http://prometheus:9090/api/v1/otlp" }
  otlp_grpc/jaeger: { endpoint: "jaeger:4317", tls: { insecure: true } }
  prometheus/own: { endpoint: "0.0.0.0:9464" }
processors: { batch: }
service:
  pipelines:
    traces: { receivers: [otlp], processors: [batch], exporters: [debug, otlp_grpc/jaeger] }
    metrics: { receivers: [otlp], processors: [batch], exporters: [otlp_http/prometheus, prometheus/own] }
"""
SCRAPED = """
scrape_configs:
- job_name: own
  static_configs: [{targets: ["collector:9464", "host.docker.internal:9323"]}]
"""
MODELS = """
services:
  vllm:
    image: vllm/vllm-openai:v0.26.0
    runtime: nvidia
    environment: [HF_HOME=/data/hub, NVIDIA_VISIBLE_DEVICES=all]
    volumes: ["hub:/data/hub"]
    command: --model Qwen/Qwen2.5-7B-Instruct --max-model-len 32k --gpu-memory-utilization 0.9 --enable-auto-tool-choice
    ports: ["127.0.0.1:8000:8000"]
    healthcheck: { test: ["CMD-SHELL", "curl -f http://localhost:8000/health || exit 1"], start_period: 5m }
    deploy: { resources: { reservations: { devices: [{ driver: nvidia, count: all, capabilities: [gpu] }] } } }
  webui:
    image: ghcr.io/open-webui/open-webui:v0.3.21
    environment: ["OPENAI_API_BASE_URL=http://vllm:8000/v1", "QDRANT_URI=http://qdrant:6334"]
    depends_on: { vllm: { condition: service_healthy } }
  triton:
    image: nvcr.io/nvidia/tritonserver:26.07-py3
    command: tritonserver --model-repository=/models --log-verbose 1 --exit-on-error false --strict-readiness=True
    ulimits: { memlock: -1, nofile: { soft: 1, hard: 2 } }
    gpus: all
    volumes: ["./models:/models"]
  qdrant:
    image: qdrant/qdrant:v1.20.0-unprivileged
    volumes: ["vectors:/qdrant/storage"]
    configs: [{ source: qdrant, target: /qdrant/config/production.yaml }]
configs: { qdrant: { content: "log_level: INFO" } }
volumes: { hub: {}, vectors: {} }
"""
BENCH = """
include:
  - other.yml
x-env: &env
  NODE_ENV: development
  LOG_LEVEL: ${LOG_LEVEL-info}
services:
  web: &web
    extends: { file: base.yml, service: common }
    command: npm run dev
    environment: { <<: *env, API_URL: "http://api:3001", CDN: "https://cdn.example.org:8443/x" }
    volumes:
      - { type: bind, source: ./src, target: /app, consistency: cached }
      - /app/node_modules
      - { type: tmpfs, target: /t, tmpfs: { size: 1000 } }
      - 'C:\\data:/data:ro'
    ports:
      - { target: 3000, published: "3000", protocol: tcp, mode: host }
      - "9229:9229/tcp"
    develop: { watch: [{ action: sync, path: ./src, target: /app }] }
    profiles: ["dev"]
  web2:
    <<: *web
    ports: !reset []
    networks: { default: { aliases: [web] } }
  api:
    build: { context: ./src, dockerfile_inline: "FROM node:20" }
    command: python -m uvicorn app:app
    sysctls: { net.core.somaxconn: 1024 }
    stop_signal: SIGINT
    restart: on-failure:3
    user: "${UID:-1000}:${GID:-1000}"
    tmpfs: ["/tmp:rw,noexec,nosuid,size=65536k", "/run"]
    environment: { SMTP: "mail:25" }
    healthcheck: { test: curl -f http://localhost:3001/health || exit 1, interval: 10s, retries: 3 }
    labels: ["traefik.http.routers.api.rule=Host(`api.localhost`)"]
    networks: [default, proxy]
networks: { proxy: { external: true, name: traefik } }
"""


def faults(folder: Path, name: str = "compose.yaml") -> list[str]:
    return [str(one) for one in check_stack(folder / name).findings if one.rule not in ADVICE]


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yml", ".yml").replace("_pbtxt", ".pbtxt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_monitoring_in_one_file(tmp_path: Path) -> None:
    written(tmp_path, prometheus__prometheus_yml=PROMETHEUS, grafana__datasources__a_yml=SOURCES)
    (tmp_path / "compose.yaml").write_text(MONITORING)
    assert faults(tmp_path) == []


def test_spans_through_a_collector(tmp_path: Path) -> None:
    written(tmp_path, collector_yml=COLLECTOR, p_yml=SCRAPED)
    (tmp_path / "compose.yaml").write_text(SPANS)
    assert faults(tmp_path) == []


def test_servers_of_models(tmp_path: Path) -> None:
    written(tmp_path, models__resnet__config_pbtxt='name: "resnet"')
    (tmp_path / "compose.yaml").write_text(MODELS)
    assert faults(tmp_path) == []


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_forms_of_a_workbench(ends: str, mark: str, tmp_path: Path) -> None:
    written(tmp_path, base_yml="services: { common: { image: 'node:20.11' } }", src__a="")
    (tmp_path / "compose.yaml").write_bytes((mark + BENCH.replace("\n", ends)).encode())
    assert faults(tmp_path) == []


def test_an_override_beside_it_is_laid_over_unasked(copied: Any) -> None:
    from typer.testing import CliRunner

    from zooserve_cli.main import app

    (copied.root / "docker-compose.override.yml").write_text("services: { grafana: { restart: somtimes } }\n")
    done = CliRunner().invoke(app, ["stack", "check", "--profile", "gpu"])
    assert "docker-compose.override.yml:1: [engine-value] restart of grafana cannot be somtimes" in done.stdout
    assert done.exit_code == 1
