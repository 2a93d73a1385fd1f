"""`zooserve ensembles`: the zoo's pipelines, and any Triton repository, looked at without a server."""

import json
from collections.abc import Collection
from difflib import get_close_matches
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


@app.command()
def render(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Models; all if left out.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only tell what differs; exit code 1 if anything does.")
    ] = False,
) -> None:
    """Write the zoo's configurations that follow from the definitions in zooserve_ensembles/families."""
    from zooserve_ensembles.rendering import difference, orphans, rendered_files, written

    root = Settings().resolved().zoo_repository
    files = rendered_files()
    for name in names or ():
        _known(name, {path.parts[0] for path in files}, "generated model")
    files = {path: content for path, content in files.items() if not names or path.parts[0] in names}
    left = [] if names else orphans(root)
    for name in left:
        typer.secho(f"{name} was rendered once, and no definition makes it any more: remove its folder.", fg="red")
    if not check:
        for path in written(root, files):
            typer.echo(f"wrote {path}")
        return
    if found := difference(root, files):
        typer.echo(found, nl=False)
        typer.secho("Edit the definitions instead, then run `zooserve ensembles render`.", fg="red")
    if found or left:
        raise typer.Exit(1)
    typer.echo(f"{len(files)} files are as they were rendered.")


@app.command("list")
def list_() -> None:
    """List the zoo's pipelines: their class, their steps, the lengths that texts are padded to."""
    from rich.console import Console
    from rich.table import Table

    from zooserve_ensembles.families import FAMILIES

    table = Table(box=None, pad_edge=False)
    for column in ("ensemble", "class", "steps", "buckets"):
        table.add_column(column)
    for pipeline in (pipeline for family in FAMILIES for pipeline in family.pipelines):
        steps = " -> ".join(step.model.name for step in pipeline.steps)
        table.add_row(pipeline.name, pipeline.slo_class, steps, " ".join(map(str, pipeline.buckets)) or "-")
    Console(highlight=False).print(table)


def _known(name: str, names: Collection[str], what: str) -> None:
    """Refuse a name that is not among them, and say which are near."""
    if name in names:
        return
    near = get_close_matches(name, names, n=3, cutoff=0.5) or sorted(names)
    raise typer.BadParameter(f"there is no {what} called {name}; did you mean {', '.join(near)}?")
