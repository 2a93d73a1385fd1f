"""What the generated prometheus.yml says, and what Prometheus itself says of it and of the committed ones."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from zooserve_observability.scraping import BESIDE, JOBS, RAY_FAMILIES, rules_folder, scrape_file

ROOT = Path(__file__).parents[2]
COMPOSED = ROOT / "observability" / "prometheus" / "prometheus.yml"
ADDRESSES = {job: f"127.0.0.1:{number}" for number, job in enumerate(JOBS, start=9000)}


def loaded(text: str) -> dict:
    return YAML(typ="safe").load(text)


def test_every_server_is_scraped_at_its_address() -> None:
    jobs = {job["job_name"]: job for job in loaded(scrape_file(ADDRESSES, None))["scrape_configs"]}
    assert {name: job["static_configs"][0]["targets"] for name, job in jobs.items()} == {
        name: [address] for name, address in ADDRESSES.items()
    }


def test_a_job_without_an_address_is_left_out() -> None:
    jobs = loaded(scrape_file({**ADDRESSES, "leaf": ""}, None))["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["router", "zoo", "haproxy", "ray"]


def test_of_rays_page_only_what_is_of_use_is_kept() -> None:
    (ray,) = [job for job in loaded(scrape_file(ADDRESSES, None))["scrape_configs"] if job["job_name"] == "ray"]
    assert ray["metric_relabel_configs"][0]["regex"] == "|".join(RAY_FAMILIES)
    assert ray["metric_relabel_configs"][0]["action"] == "keep"


def test_the_rules_are_those_of_this_checkout() -> None:
    assert rules_folder() == ROOT / "observability" / "prometheus" / "rules"
    assert loaded(scrape_file(ADDRESSES, rules_folder()))["rule_files"] == [f"{rules_folder()}/*.yml"]
    assert "rule_files" not in loaded(scrape_file(ADDRESSES, None))


NO_PROMTOOL = shutil.which("promtool") is None
INSTALL = "apt-get install -y --no-install-recommends prometheus"


def refusal(file: Path, *options: str) -> str:
    """What Prometheus has against a configuration."""
    command = ["promtool", "check", "config", *options, str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    return checked.stdout + checked.stderr if checked.returncode else ""


@pytest.mark.skipif(NO_PROMTOOL, reason=INSTALL)
def test_prometheus_takes_the_generated_file(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(scrape_file(ADDRESSES, rules_folder()))
    assert not refusal(file)


@pytest.mark.skipif(NO_PROMTOOL, reason=INSTALL)
def test_prometheus_takes_the_file_for_compose_untouched() -> None:
    """Its syntax and its rules; the secret is where Compose puts it, and nowhere here."""
    assert not refusal(COMPOSED, "--syntax-only")


@pytest.mark.skipif(NO_PROMTOOL, reason=INSTALL)
def test_prometheus_takes_the_file_for_compose_with_a_secret(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "observability" / "prometheus", tmp_path, dirs_exist_ok=True)
    file, secret = tmp_path / "prometheus.yml", tmp_path / "secret"
    file.write_text(file.read_text().replace("/run/secrets/qdrant_api_key", str(secret)))
    assert "secret" in refusal(file)
    secret.write_text("key")
    assert not refusal(file)


@pytest.mark.skipif(NO_PROMTOOL, reason=INSTALL)
def test_prometheus_takes_the_file_for_kubernetes(tmp_path: Path) -> None:
    """But for the discovery of pods: Debian's build has none."""
    shutil.copytree(ROOT / "observability" / "prometheus", tmp_path, dirs_exist_ok=True)
    yaml = YAML(typ="safe", pure=True)
    configuration = yaml.load((tmp_path / "kubernetes.yml").read_text())
    (job,) = configuration["scrape_configs"]
    assert job.pop("kubernetes_sd_configs")[0]["role"] == "pod"
    with (tmp_path / "kubernetes.yml").open("w") as file:
        yaml.dump(configuration, file)
    assert not refusal(tmp_path / "kubernetes.yml")


def test_pods_get_the_jobs_that_dashboards_and_rules_ask_for() -> None:
    (job,) = loaded((ROOT / "observability" / "prometheus" / "kubernetes.yml").read_text())["scrape_configs"]
    (kept,) = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    by_labels = re.compile(kept["regex"])
    found = ("router;http", "router;haproxy", "router;ray", "zoo;metrics", "leaf;metrics", "vllm;metrics")
    assert all(map(by_labels.fullmatch, found))
    assert not by_labels.fullmatch("zoo;http")
    named = [rule["source_labels"] for rule in job["relabel_configs"] if rule.get("target_label") == "job"]
    assert named == [
        ["__meta_kubernetes_pod_label_app_kubernetes_io_component"],
        ["__meta_kubernetes_pod_container_port_name"],
    ]


@pytest.mark.parametrize("name", ["prometheus.yml", "kubernetes.yml"])
def test_of_rays_page_the_same_is_kept_everywhere(name: str) -> None:
    text = (ROOT / "observability" / "prometheus" / name).read_text()
    assert "|".join(RAY_FAMILIES) in text


def test_everything_that_runs_in_compose_is_scraped_there() -> None:
    composed = loaded(COMPOSED.read_text())
    jobs = [job["job_name"] for job in composed["scrape_configs"]]
    assert len(jobs) == len(set(jobs))
    assert set(jobs) == {*JOBS, *BESIDE}


def test_what_is_found_by_its_name_is_asked_for_by_address_and_has_a_port() -> None:
    jobs = {job["job_name"]: job for job in loaded(COMPOSED.read_text())["scrape_configs"]}
    assert "dns_sd_configs" not in jobs.pop("prometheus")
    for name, job in jobs.items():
        (found,) = job["dns_sd_configs"]
        assert found["type"] == "A", name  # an A record bears no port
        assert 0 < found["port"] < 65536, name
