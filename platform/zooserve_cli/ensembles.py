"""`zooserve ensembles`: the zoo's pipelines, and any Triton repository, looked at without a server."""

import json
from pathlib import Path
from typing import Annotated

import typer

from zooserve.settings import Settings

__all__ = ["app"]

app = typer.Typer(
    help="Look at the pipelines of a Triton repository without a server.", no_args_is_help=True, rich_markup_mode=None
)

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@app.command()
def check(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A Triton model repository; the zoo if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail the check too.")] = False,
) -> None:
    """Hold every configuration and every edge of a repository against each other; exit code 1 on a fault."""
    from zooserve_ensembles.checking import check_repository

    report = check_repository(directory or Settings().resolved().zoo_repository)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1))
    else:
        for finding in report.findings:
            typer.secho(str(finding), fg=_COLOURS[finding.severity])
        typer.echo(report.summary())
    if not report.passes(strict=strict):
        raise typer.Exit(1)
