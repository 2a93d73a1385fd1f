"""The runbook: an entry for each alert, and nothing in it that whoever is woken would look for in vain."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel

from zooserve.settings import Settings
from zooserve_cli.main import app
from zooserve_observability.foreign import FOREIGN
from zooserve_observability.rules.groups import ALERTS, RECORDINGS
from zooserve_observability.vocabulary import METRICS

DOCS = Path(__file__).parents[3] / "docs"
RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", RUNBOOK, re.DOTALL)
PROSE = re.sub(r"```.*?```", "", RUNBOOK, flags=re.DOTALL)
COMMANDS = sorted(
    {line.partition("#")[0].strip() for block in BLOCKS for line in block.splitlines() if line.startswith("zooserve ")}
    | set(re.findall(r"`(zooserve [^`]+)`", PROSE))
)
EXPRESSIONS = sorted(
    set(re.findall(r"^promtool query instant http://127\.0\.0\.1:9090 '(.+)'$", RUNBOOK, re.MULTILINE))
)
_SERIES = re.compile(r"(?<![/\w])(?:zooserve|nv|vllm)[_:][a-zA-Z0-9_:]+")


def known_series() -> set[str]:
    plain = {metric.series for metric in METRICS} | {metric.series for metric in FOREIGN}
    histograms = [metric.series for metric in METRICS if metric.kind == "histogram"]
    histograms += [metric.series for metric in FOREIGN if metric.kind == "histogram"]
    recorded = {recording.record for recording in RECORDINGS}
    return plain | recorded | {f"{name}_{end}" for name in histograms for end in ("bucket", "count", "sum")}


def fields(model: type[BaseModel]) -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        is_tree = isinstance(inner, type) and issubclass(inner, BaseModel)
        found |= {f"{name}__{below}" for below in fields(inner)} if is_tree else {name}
    return found


def test_every_alert_has_an_entry_and_every_entry_an_alert() -> None:
    entries = re.findall(r"^### (.+)$", RUNBOOK, re.MULTILINE)
    assert sorted(entries) == sorted(alert.name for alert in ALERTS)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_entry_says_what_it_means_what_to_look_at_and_what_to_do(alert) -> None:
    entry = RUNBOOK.partition(f"### {alert.name}\n")[2].partition("\n##")[0]
    assert "**Means**" in entry
    assert "**Look**" in entry
    assert "**Do**" in entry or "**do**" in entry or "what to do**" in entry


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_links_to_its_entry(alert) -> None:
    file, _, anchor = dict(alert.annotations)["runbook_url"].partition("#")
    assert file == "docs/runbook.md"
    # As GitHub makes an anchor of a heading.
    assert anchor in {heading.lower() for heading in re.findall(r"^### (.+)$", RUNBOOK, re.MULTILINE)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists(command: str) -> None:
    group = typer.main.get_command(app)
    words = shlex.split(command)[1:]
    while words and hasattr(group, "commands"):
        assert words[0] in group.commands, f"no such command: {command}"
        group = group.commands[words.pop(0)]
    options = {option for parameter in group.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options


def test_every_series_exists() -> None:
    assert len(EXPRESSIONS) >= len(ALERTS)
    named = {name for text in (*EXPRESSIONS, *re.findall(r"`([^`]+)`", PROSE)) for name in _SERIES.findall(text)}
    assert named <= known_series()


def test_prometheus_understands_every_expression(promtool, tmp_path: Path) -> None:
    rules = "".join(f"  - record: r{n}\n    expr: |-\n      {expr}\n" for n, expr in enumerate(EXPRESSIONS))
    file = tmp_path / "rules.yml"
    file.write_text(f"groups:\n- name: runbook\n  rules:\n{rules}")
    checked = promtool("check", "rules", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_setting_exists() -> None:
    known = {f"ZOOSERVE_{name.upper()}" for name in fields(Settings)}
    assert set(re.findall(r"ZOOSERVE_[A-Z_]+", RUNBOOK)) <= known


def test_every_link_leads_somewhere() -> None:
    for file, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", RUNBOOK):
        text = (DOCS / file).read_text(encoding="utf-8") if file else RUNBOOK
        headings = {
            re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in re.findall(r"^#+ (.+)$", text, re.M)
        }
        assert not anchor or anchor in headings, f"{file}#{anchor}"
