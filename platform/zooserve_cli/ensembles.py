"""`zooserve ensembles`: the zoo's pipelines, and any Triton repository, looked at without a server."""

import json
from collections.abc import Collection
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zooserve.settings import Settings

__all__ = ["app"]

app = typer.Typer(
    help="Look at the pipelines of a Triton repository without a server.", no_args_is_help=True, rich_markup_mode=None
)


class Target(StrEnum):
    """Which Triton is to serve a repository: the one of the wheel, or NVIDIA's container."""

    EMBEDDED = "embedded"
    CONTAINER = "container"


class Form(StrEnum):
    """What a drawing is made with."""

    MERMAID = "mermaid"
    SVG = "svg"


_FORMS = {".svg": Form.SVG, ".mmd": Form.MERMAID, ".mermaid": Form.MERMAID, ".md": Form.MERMAID}
"""What a file is drawn with, by its suffix."""
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@app.command()
def check(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A Triton model repository; the zoo if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail the check too.")] = False,
    target: Annotated[
        Target | None, typer.Option("--target", help="The Triton that is to serve it; embedded for the zoo.")
    ] = None,
) -> None:
    """Hold every configuration, every edge and every file of a Triton repository against each other.

    Exit code 1 if anything is wrong. docs/checking.md lists the rules.
    """
    from zooserve_cli.repository_check import checked

    report = checked(Settings().resolved(), directory, target)
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
    """Write what follows from zooserve_ensembles/families: configurations, and the drawings in docs/ensembles.md."""
    from zooserve_ensembles.rendering import difference, orphans, written

    root = Settings().resolved().zoo_repository
    if not root.is_dir():
        raise typer.BadParameter(f"{root} is not there: run from the checkout, or set ZOOSERVE_REPOSITORY.")
    chosen = _rendered(root, names or [])
    left = [] if names else orphans(root)
    for name in left:
        typer.secho(f"{name} was rendered once, and no definition makes it any more: remove its folder.", fg="red")
    if not check:
        for folder, files in chosen.items():
            for path in written(folder, files):
                typer.echo(f"wrote {path}")
        return
    if found := "".join(difference(folder, files) for folder, files in chosen.items()):
        typer.echo(found, nl=False)
        typer.secho("Edit the definitions instead, then run `zooserve ensembles render`.", fg="red")
    if found or left:
        raise typer.Exit(1)
    typer.echo(f"{sum(map(len, chosen.values()))} files are as they were rendered.")


@app.command()
def draw(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The ensemble.")],
    form: Annotated[
        Form | None,
        typer.Option("--format", help="What to draw with; if left out, what the file's suffix says, else mermaid."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="A file: .svg, .mmd or .md; standard output if left out.")
    ] = None,
    repository: Annotated[
        Path | None, typer.Option("--repository", metavar="DIR", help="A Triton model repository; the zoo if left out.")
    ] = None,
) -> None:
    """Draw an ensemble: its steps, and what flows between them."""
    from zooserve_ensembles.drawing import configs_of, diagram_of, fenced, mermaid, svg, zoo_configs

    form = form or _form_of(output)
    configs = configs_of(repository) if repository else zoo_configs(Settings().resolved().zoo_repository)
    ensembles = [model for model, config in configs.items() if config.platform == "ensemble"]
    if not ensembles:
        raise typer.BadParameter(f"{repository} holds no ensemble whose configuration can be read.")
    _known(name, ensembles, "ensemble")
    drawing = {Form.MERMAID: mermaid, Form.SVG: svg}[form](diagram_of(configs[name], configs))
    if output is None:
        typer.echo(drawing, nl=False)
        return
    in_markdown = form is Form.MERMAID and output.suffix == ".md"
    try:
        output.write_text(fenced(drawing) if in_markdown else drawing, encoding="utf-8")
    except OSError as exc:
        raise typer.BadParameter(f"{output} cannot be written: {exc.strerror or exc}.") from exc


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


def _rendered(zoo: Path, names: Collection[str]) -> dict[Path, dict[Path, bytes]]:
    """The files to write, by the folder that they are in: of those models, or of all, and then the drawings."""
    from zooserve_ensembles.rendering import rendered_files

    files = rendered_files()
    for name in names:
        _known(name, {path.parts[0] for path in files}, "generated model")
    if names:
        return {zoo: {path: content for path, content in files.items() if path.parts[0] in names}}
    return {zoo: dict(files), **_drawn_page(zoo)}


def _drawn_page(zoo: Path) -> dict[Path, dict[Path, bytes]]:
    """The page of the documentation with its drawings; none where only the model repository is."""
    from zooserve_ensembles.drawing import with_drawings, zoo_configs

    page = zoo.parents[1] / "docs" / "ensembles.md"
    if not page.is_file():
        return {}
    drawn = with_drawings(page.read_text(encoding="utf-8"), zoo_configs(zoo))
    return {page.parent: {Path(page.name): drawn.encode()}}


def _form_of(output: Path | None) -> Form:
    """What the file's suffix says; Mermaid where there is no file."""
    if output is None:
        return Form.MERMAID
    if output.suffix.lower() not in _FORMS:
        raise typer.BadParameter(
            f"{output.name} says no format that is drawn here: name it .svg for a picture, or .mmd or .md for Mermaid."
        )
    return _FORMS[output.suffix.lower()]


def _known(name: str, names: Collection[str], what: str) -> None:
    """Refuse a name that is not among them, and say which are near."""
    if name in names:
        return
    near = get_close_matches(name, names, n=3, cutoff=0.5) or sorted(names)
    raise typer.BadParameter(f"there is no {what} called {name}; did you mean {', '.join(near)}?")
