"""What panels make of series whose sense is plain, computed by promtool: data that are there can still be the wrong."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from zooserve_observability.dashboards.committed import Drawn, filled, read

PANELS = {
    (drawn.dashboard.removeprefix("zooserve-"), drawn.title): drawn
    for drawn in read(Path(__file__).parents[3] / "observability/grafana/dashboards")
}
CHAT = 'model="chat",version="1",class="interactive"'
STAGE = '{model="embed_encoder",version="1",job="zoo",instance="node:8002"}'
INFO = 'zooserve_model_info{model="chat",version="1",task="chat",runs_on="leaf",weights="a1",instance="node:8000"}'
RELEASES = 'model="embed",version="1"'
EMBED = 'model="embed",version="1",class="interactive"'

SENSE: Mapping[tuple[str, str], tuple[Mapping[str, float], Mapping[str, list[float]]]] = {
    # A second's worth of each counter; what each line of the panel is to show.
    ("chat", "What became of the leaf's tokens"): (
        {
            "zooserve_leaf_generated_tokens_total": 12,
            f'zooserve_tokens_total{{{CHAT},direction="output"}}': 8,
            f'zooserve_wasted_tokens_total{{{CHAT},reason="hang_up"}}': 2,
            f'zooserve_wasted_tokens_total{{{CHAT},reason="stop"}}': 1,
            INFO: 0,
        },
        {"delivered": [6], "wasted": [3], "orphaned": [3]},
    ),
    ("chat", "Refused for want of room, of all asked"): (
        {
            f'zooserve_requests_total{{{CHAT},outcome="ok"}}': 6,
            f'zooserve_requests_total{{{CHAT},outcome="Overloaded"}}': 1,
            f'zooserve_requests_total{{{CHAT},outcome="BackendUnavailable"}}': 3,
            'zooserve_admission_refused_total{model="chat",class="interactive",reason="queue"}': 1,
            'zooserve_admission_refused_total{model="chat",class="interactive",reason="not_ready"}': 3,
        },
        {"{{model}}": [0.1]},
    ),
    ("overview", "Share of failures"): (
        {
            f'zooserve_requests_total{{{EMBED},outcome="ok"}}': 5,
            f'zooserve_requests_total{{{EMBED},outcome="BadInput"}}': 4,
            f'zooserve_requests_total{{{EMBED},outcome="BackendFailed"}}': 1,
        },
        {"{{model}} v{{version}}": [0.1]},
    ),
    ("zoo", "In the queue, mean"): (
        {f"nv_inference_queue_duration_us{STAGE}": 3000, f"nv_inference_request_success{STAGE}": 2},
        {"{{model}} v{{version}}": [1500]},
    ),
    ("zoo", "Seconds computed in a second, by stage"): (
        {f"nv_inference_compute_infer_duration_us{STAGE}": 250_000},
        {"{{model}} v{{version}}": [0.25]},
    ),
    ("zoo", "Mean batch"): (
        {f"nv_inference_count{STAGE}": 12, f"nv_inference_exec_count{STAGE}": 4},
        {"{{model}} v{{version}}": [3]},
    ),
    ("releases", "Share, as observed"): (
        {
            f"zooserve_release_requests_total{{{RELEASES},{which}}}": count
            for which, count in (
                ('release="embed",role="serving",outcome="ok"', 8),
                ('release="embed",role="serving",outcome="BackendFailed"', 1),
                ('release="next",role="canary",outcome="ok"', 1),
                ('release="then",role="shadow",outcome="ok"', 5),
                ('release="then",role="shadow",outcome="skipped"', 4),
            )
        },
        {"{{role}}: {{release}} v{{version}} ({{model}})": [0.1, 0.5, 0.9]},
    ),
}


def rising(series: Mapping[str, float]) -> list[dict[str, str]]:
    """Each counter at so much a second; what does not rise stands at 1."""
    return [{"series": name, "values": f"0+{rate * 15:g}x40" if rate else "1x40"} for name, rate in series.items()]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install --no-install-recommends prometheus")
@pytest.mark.parametrize("drawn", [PANELS[panel] for panel in SENSE], ids=[" ".join(panel) for panel in SENSE])
def test_a_panel_shows_what_it_says(drawn: Drawn, tmp_path: Path) -> None:
    series, wanted = SENSE[drawn.dashboard.removeprefix("zooserve-"), drawn.title]
    assert [target.legend for target in drawn.targets] == list(wanted)
    asked = [
        # Values alone: whose they are, test_structure holds to the legend.
        {
            "expr": f'count_values("is", round({filled(target.expression, "1m")}, 0.001))',
            "eval_time": "5m",
            "exp_samples": [{"labels": f'{{is="{value:g}"}}', "value": 1} for value in wanted[target.legend]],
        }
        for target in drawn.targets
    ]
    file = tmp_path / "values.test.yml"
    with file.open("w") as out:
        tests = [{"interval": "15s", "input_series": rising(series), "promql_expr_test": asked}]
        YAML().dump({"evaluation_interval": "15s", "tests": tests}, out)
    told = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
