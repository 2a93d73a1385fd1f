# ruff: noqa: E501  words, and files on one line
"""Whatever a compose file looks like: findings, never a traceback."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from zooserve_cli.stack.inspection import check_stack

ROOT = Path(__file__).parents[3]
EXAMPLE = ".env.example"
MUTATED = (
    "docker-compose.yml",
    "observability/prometheus/prometheus.yml",
    "observability/otel/collector.yaml",
    "observability/tempo/tempo.yaml",
    "observability/grafana/provisioning/datasources/zooserve.yaml",
    "observability/grafana/provisioning/dashboards/zooserve.yaml",
)
ODD = (
    None,
    "",
    "x",
    "${",
    "${X:?}",
    "::",
    "0.0.0.0:99999:1",
    "http://:1",
    "http://a b:1/",
    0,
    -1,
    1e400,
    True,
    [],
    {},
    [[]],
)
NAMES = st.sampled_from(
    [
        "services",
        "image",
        "build",
        "ports",
        "volumes",
        "networks",
        "secrets",
        "configs",
        "environment",
        "command",
        "deploy",
        "entrypoint",
        "healthcheck",
        "test",
        "depends_on",
        "extends",
        "service",
        "profiles",
        "env_file",
        "expose",
        "context",
        "devices",
        "reservations",
        "resources",
        "device_ids",
        "target",
        "source",
        "file",
        "a",
        "b",
        "x-y",
        "<<",
        "include",
    ]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 70000), st.floats(), st.text(max_size=12), st.sampled_from(ODD[1:9])
)  # fmt: skip
TREES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=5)), max_leaves=25
)  # fmt: skip


def check(profiles: tuple[str, ...] = ("gpu",)) -> None:
    report = check_stack(Path("docker-compose.yml"), Path(EXAMPLE), Path(EXAMPLE), profiles)
    assert all(str(finding) for finding in report.findings)
    assert report.as_json()
    assert report.summary()


def written(document: Any, path: Path) -> None:
    with path.open("w") as file:
        YAML(typ="safe", pure=True).dump(document, file)


def spots(node: Any) -> list[tuple[Any, Any]]:
    """Every place in a document that can be changed: its container and its key."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [spot for key in keys for spot in [(node, key), *spots(node[key])]]


def mutated(document: Any, chance: random.Random) -> Any:
    document = copy.deepcopy(document)
    for _ in range(chance.randint(1, 4)):
        container, key = chance.choice(spots(document))
        match chance.randint(0, 3):
            case 0:
                del container[key]
            case 1:
                container[key] = copy.deepcopy(chance.choice(ODD))
            case 2:
                container[key] = [copy.deepcopy(container[key])] * 2
            case 3:
                container[key] = {"a": copy.deepcopy(container[key]), "b": None}
        if not spots(document):
            break
    return document


@pytest.mark.parametrize("relative", MUTATED)
def test_nodes_that_are_dropped_doubled_or_of_another_type(relative: str, copied: Any) -> None:
    path = copied.own(relative)
    document = YAML(typ="safe", pure=True).load((ROOT / relative).read_text())
    for seed in range(4):
        written(mutated(document, random.Random(f"{relative} {seed}")), path)
        check(("shared-gpu" if seed % 3 == 0 else "gpu",))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(document=st.fixed_dictionaries({"services": st.dictionaries(NAMES, TREES, max_size=4)}, optional={"networks": TREES, "secrets": TREES, "x-y": TREES}))  # fmt: skip
def test_any_tree(document: Any, copied: Any) -> None:
    written(document, copied.root / "docker-compose.yml")
    check(())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.text(max_size=200))
def test_any_text_as_any_of_the_files(text: str, copied: Any) -> None:
    (copied.root / "other.yml").write_bytes(text.encode("utf-8", "surrogatepass"))
    (copied.root / "other.env").write_bytes(text.encode("utf-8", "surrogatepass"))
    check_stack(Path("other.yml"), Path("other.env"), None)
    (copied.root / "docker-compose.yml").write_text("services: { a: { image: 'a:${A:-1}' } }\n")
    check_stack(Path("docker-compose.yml"), Path("other.env"), Path("other.env"))


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "a: &a { b: *a }",
        "? [1, 2]\n: 3",
        "- a",
        "services:",
        "%YAML 9.9\n---\na: 1",
        "a: !x b",
        "---\n---\n",
        "\x00",
        "a: " + "[" * 500,
        "services:\n  a: &a\n    image: a:1\n    depends_on: { a: *a }\n",
        "services: { a: { extends: { service: a } } }",
        "".join(
            f"{name}: &{name} [{','.join([below] * 9)}]\n"
            for name, below in zip("abcdefg", ["x", *(f"*{n}" for n in "abcdef")], strict=True)
        )
        + "services: *g\n",
    ],
)
def test_known_traps_of_yaml(text: str, tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text(text)
    report = check_stack(tmp_path / "docker-compose.yml")
    assert report.findings
    assert not report.passes


def test_a_folder_and_a_binary_are_findings(tmp_path: Path) -> None:
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00\x01")
    for path in (tmp_path, tmp_path / "binary.yml", tmp_path / "nowhere.yml"):
        assert [finding.rule for finding in check_stack(path).findings] == ["compose-unreadable"]
