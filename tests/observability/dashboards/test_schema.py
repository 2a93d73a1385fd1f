"""The committed files against Grafana's own types, which are generated from the schemas of Grafana 11.6."""

import copy
import enum
import json
import typing
from pathlib import Path
from types import UnionType
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana

FILES = sorted((Path(__file__).parents[3] / "observability/grafana/dashboards").glob("*.json"))


def problems(document: Any) -> list[str]:
    """Where a dashboard is not one: what its types do not know, and values of another type."""
    register_default_plugins()
    model = grafana.Dashboard.from_json(copy.deepcopy(document))
    known = json.loads(json.dumps(model, cls=JSONEncoder))
    return [*_unknown(document, known, "$"), *_mistyped(model, grafana.Dashboard, "$")]


def _unknown(written: Any, known: Any, at: str) -> list[str]:
    """What reading it by the types lost. What the types add by themselves is no fault."""
    if isinstance(written, dict) and isinstance(known, dict):
        lost = [f"{at}.{key}: unknown" for key in written if key not in known]
        return lost + [
            fault for key in written if key in known for fault in _unknown(written[key], known[key], f"{at}.{key}")
        ]
    if isinstance(written, list) and isinstance(known, list) and len(written) == len(known):
        return [
            fault for i, pair in enumerate(zip(written, known, strict=True)) for fault in _unknown(*pair, f"{at}[{i}]")
        ]
    return [] if written == known else [f"{at}: {written!r} is read as {known!r}"]


def _mistyped(value: Any, hint: Any, at: str) -> list[str]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object) or (hint is type(None) and value is None):
        return _of_own_type(value, at)
    if origin in (typing.Union, UnionType):
        tried = [_mistyped(value, argument, at) for argument in arguments if argument is not type(None)]
        return min(tried, key=len)
    if origin is typing.Literal:
        return [] if value in arguments else [f"{at}: {value!r} is none of {arguments}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{at}: {value!r} is no list"]
        return [fault for i, item in enumerate(value) for fault in _mistyped(item, arguments[0], f"{at}[{i}]")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{at}: {value!r} is no map"]
        return [fault for key, item in value.items() for fault in _mistyped(item, arguments[1], f"{at}.{key}")]
    return _of_class(value, hint, at)


def _of_class(value: Any, wanted: type, at: str) -> list[str]:
    if issubclass(wanted, enum.Enum):
        return [] if value in [member.value for member in wanted] else [f"{at}: {value!r} is no {wanted.__name__}"]
    if wanted is float and type(value) is int:
        return []
    if wanted is str and isinstance(value, str):
        return []
    if wanted in (str, int, float, bool):
        return [] if type(value) is wanted else [f"{at}: {value!r} is no {wanted.__name__}"]
    if isinstance(value, dict) and hasattr(wanted, "from_json"):
        # What the types themselves leave as it is: transformations.
        held = wanted.from_json(value)
        return [*_unknown(value, json.loads(json.dumps(held, cls=JSONEncoder)), at), *_of_own_type(held, at)]
    if not isinstance(value, wanted):
        return [f"{at}: {value!r} is no {wanted.__name__}"]
    return _of_own_type(value, at)


def _of_own_type(value: Any, at: str) -> list[str]:
    """A panel's options and what a query holds are typed by the plugin that reads them."""
    if not type(value).__module__.startswith("grafana_foundation_sdk.models"):
        return []
    hints = typing.get_type_hints(type(value))
    return [
        fault
        for name, held in vars(value).items()
        if held is not None
        for fault in _mistyped(held, hints.get(name, Any), f"{at}.{name}")
    ]


def panel_of_type(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(panel for panel in document["panels"] if panel["type"] == kind)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_committed_dashboard_is_one_by_grafanas_types(file: Path) -> None:
    assert problems(json.loads(file.read_text())) == []


FAULTS = {
    "a field nobody knows": lambda d: d.update(colour="blue"),
    "a title that is a number": lambda d: d.update(title=7),
    "a schema version that is text": lambda d: d.update(schemaVersion="41"),
    "a variable's field misspelt": lambda d: d["templating"]["list"][1].update(mulit=True),
    "a variable of no kind": lambda d: d["templating"]["list"][1].update(type="querry"),
    "a grid place without a number": lambda d: d["panels"][1]["gridPos"].update(w="8"),
    "a panel's option misspelt": lambda d: panel_of_type(d, "timeseries")["options"].update(legende={}),
    "a legend in no place": lambda d: panel_of_type(d, "timeseries")["options"]["legend"].update(placement="left"),
    "a way to stack that there is not": lambda d: panel_of_type(d, "timeseries")["fieldConfig"]["defaults"]["custom"][
        "stacking"
    ].update(mode="piled"),
    "a query's field misspelt": lambda d: panel_of_type(d, "timeseries")["targets"][0].update(expresion="up"),
    "a query that is no text": lambda d: panel_of_type(d, "timeseries")["targets"][0].update(expr=1),
    "a threshold that is text": lambda d: panel_of_type(d, "timeseries")["fieldConfig"]["defaults"]["thresholds"][
        "steps"
    ][0].update(value="1"),
    "a mapping without an end": lambda d: panel_of_type(d, "state-timeline")["fieldConfig"]["defaults"]["mappings"][0][
        "options"
    ]["0"].update(text=0),
    "a transformation's field misspelt": lambda d: panel_of_type(d, "table")["transformations"][0].update(idd="x"),
    "a transformation whose name is a number": lambda d: panel_of_type(d, "table")["transformations"][0].update(id=3),
    "a link's field misspelt": lambda d: d["links"][0].update(keep_time=True),
}


@pytest.mark.parametrize("damage", FAULTS.values(), ids=FAULTS)
def test_a_dashboard_that_is_none_is_found_out(damage: Any) -> None:
    document = json.loads(next(file for file in FILES if file.stem == "overview").read_text())
    damage(document)
    assert len(problems(document)) == 1
