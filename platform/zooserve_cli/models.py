"""`zooserve models`: what may be asked for, from the router if one runs, else from the catalogue."""

import json
from typing import Annotated, Any

import typer

from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["models"]

_TIMEOUT_S = 5.0


def models(as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False) -> None:
    """List the models of the catalogue: which are enabled, which are ready, what else they are called."""
    settings = Settings().resolved()
    rows = _rows(settings)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("model", "version", "task", "enabled", "ready", "also called", "licence"):
        table.add_column(column)
    for row in rows:
        ready = {True: "[green]yes[/]", False: "[red]no[/]", None: "-"}[row["ready"]]
        enabled = "yes" if row["enabled"] else "no"
        cells = (row["name"], str(row["version"]), row["task"], enabled, ready)
        table.add_row(*cells, ", ".join(row["aliases"]), row["licence"])
    out = Console(highlight=False)
    out.print(table)
    if off := [row["name"] for row in rows if row["optional"] and not row["enabled"]]:
        out.print(f"\nTo enable one: `zooserve up --models default,{off[0]}`; all of them: `--models all`.")


def _rows(settings: Settings) -> list[dict[str, Any]]:
    from zooserve.catalogue import load_catalogue

    readiness = _readiness(settings)
    catalogue = load_catalogue(settings.catalogue)
    enabled = readiness or {model.name for model in catalogue.enabling(settings.models)}
    return [
        {
            "name": model.name,
            "version": model.version,
            "task": model.task,
            "enabled": model.name in enabled,
            "ready": readiness.get(model.name),
            "required": model.required,
            "optional": model.optional,
            "aliases": list(model.aliases),
            "licence": model.licence,
            "source": model.source,
            "description": model.description,
        }
        for model in catalogue
    ]


def _readiness(settings: Settings) -> dict[str, bool]:
    """What the running router says of each model; nothing if none runs."""
    state = StateFolder(settings.state_dir).read_state()
    if state is None or not state.is_running:
        return {}
    import httpx

    try:
        body = httpx.get(f"http://{state.router}/health/ready", timeout=_TIMEOUT_S).json()
        return {model["model"]: bool(model["ready"]) for model in body["models"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return {}
