"""`zooserve doctor`: what this machine lacks, and how to mend it."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from zooserve.settings import Settings

__all__ = ["doctor"]


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False) -> None:
    """Check what the platform needs on this machine; exit code 1 if something is missing."""
    from zooserve_cli.checks import all_checks

    checks = all_checks(Settings().resolved())
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        for check in checks:
            mark = typer.style("ok   ", fg="green") if check.ok else typer.style("fault", fg="red")
            typer.echo(f"{mark} {check.name}: {check.found}")
            if not check.ok:
                typer.echo(f"      {check.mend}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)
