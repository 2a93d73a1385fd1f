"""Every expression is PromQL to Prometheus' own parser; what it finds is a matter for a live platform."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from zooserve_observability.dashboards.committed import filled, read

PANELS = read(Path(__file__).parents[3] / "observability/grafana/dashboards")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="apt-get install --no-install-recommends prometheus"
)


def checked(folder: Path, expressions: list[str]) -> subprocess.CompletedProcess[str]:
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    with (folder / "rules.yml").open("w") as file:
        YAML().dump({"groups": [{"name": "panels", "rules": rules}]}, file)
    command = ["promtool", "check", "rules", "--lint=none", str(folder / "rules.yml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_promtool
def test_prometheus_parses_every_expression_with_its_variables_filled_in(tmp_path: Path) -> None:
    expressions = [filled(target.expression, "1m") for panel in PANELS for target in panel.targets]
    result = checked(tmp_path, expressions)
    assert result.returncode == 0, result.stderr
    assert f"{len(expressions)} rules found" in result.stdout


@needs_promtool
def test_what_is_no_promql_is_found_out(tmp_path: Path) -> None:
    assert checked(tmp_path, ["sum by (model) (rate(x[1m])"]).returncode == 1


def test_filling_in_leaves_no_variable() -> None:
    left = re.compile(r"\$(?!{\d})")
    assert not [target for panel in PANELS for target in panel.targets if left.search(filled(target.expression, "1m"))]
    assert filled('rate(x{model=~"$model"}[$__rate_interval])', "5m") == 'rate(x{model=~".*"}[5m])'
