"""`zooserve status`: what runs, since when, and which models answer."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from zooserve.errors import NotRunning
from zooserve.processes.identity import age_s
from zooserve.processes.records import ProcessRecords, Record
from zooserve.processes.state import PlatformState, StateFolder
from zooserve.settings import Settings
from zooserve_cli.places import shown

__all__ = ["running_state", "status"]

_TIMEOUT_S = 5.0


def status(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Show the servers of the running platform and which models answer."""
    folder = StateFolder(Settings().resolved().state_dir)
    state = running_state(folder)
    servers = _servers(state, ProcessRecords(folder.records_file).alive())
    health = _health(state)
    if as_json:
        body = {**state.model_dump(mode="json"), "servers": servers, "health": health}
        typer.echo(json.dumps(body, indent=1))
        return
    _print(state, servers, health)


def running_state(folder: StateFolder) -> PlatformState:
    """The state of the platform that runs from this folder. Raises NotRunning if none does."""
    state = folder.read_state()
    if state is None or not state.is_running:
        raise NotRunning(f"No platform runs from {folder.root}. Start one with `zooserve up`.")
    return state


def _servers(state: PlatformState, records: list[Record]) -> list[dict[str, Any]]:
    addresses = {
        "supervisor": "",
        "router": f"http://{state.router}",
        "zoo": f"http://{state.zoo_http}",
        "leaf": f"http://{state.leaf_http}",
        **({"engine": f"http://{state.engine_http}"} if state.engine_http else {}),
    }
    own = {record.role: record.process for record in records}
    return [
        {
            "name": name,
            "pid": own[name].pid if name in own else None,
            "address": address,
            "uptime_s": round(age_s(own[name]), 1) if name in own else None,
            "processes": sum(record.role.split()[0] == name for record in records),
            "restarts": state.restarts.get(name, 0),
        }
        for name, address in addresses.items()
    ]


def _health(state: PlatformState) -> Any:
    import httpx

    try:
        return httpx.get(f"http://{state.router}/health/ready", timeout=_TIMEOUT_S).json()
    except (httpx.HTTPError, ValueError) as exc:
        return {"error": repr(exc)}


def _print(state: PlatformState, servers: list[dict[str, Any]], health: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("server", "pid", "address", "up for", "processes", "restarts"):
        table.add_column(column)
    for server in servers:
        uptime = _for_humans(server["uptime_s"]) if server["uptime_s"] is not None else "-"
        cells = (server["name"], server["pid"] or "-", server["address"], uptime, server["processes"])
        table.add_row(*map(str, (*cells, server["restarts"])))
    out = Console(highlight=False)
    out.print(f"{state.phase}, up for {_for_humans(time.time() - state.started_at)}\n")
    out.print(table)
    models = Table(box=None, pad_edge=False)
    for column in ("model", "state"):
        models.add_column(column)
    for name, answer in _models(health):
        models.add_row(name, answer)
    out.print()
    out.print(models)
    if state.scrape_file:
        out.print(f"\nscrape it: prometheus --config.file={shown(Path(state.scrape_file))}", soft_wrap=True)


def _models(health: Any) -> list[tuple[str, str]]:
    """Each model and what the router says of it."""
    if not isinstance(health, dict) or "models" not in health:
        return [("(router)", f"[red]no answer[/] {health}")]
    return [(model["model"], _verdict(model)) for model in health["models"]]


def _verdict(model: dict[str, Any]) -> str:
    return "[green]ready[/]" if model["ready"] else f"[red]not ready[/] {model['reason']}"


def _for_humans(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
