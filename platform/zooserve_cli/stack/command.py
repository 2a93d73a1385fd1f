"""`zooserve stack`: the production stack, looked at without a container engine."""

import json
from pathlib import Path
from typing import Annotated

import typer

from zooserve_cli.places import shown

__all__ = ["app"]

app = typer.Typer(
    help="Look at a compose file without a container engine.", no_args_is_help=True, rich_markup_mode=None
)
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@app.callback()
def stack() -> None:
    """Keeps `check` a subcommand: Typer would make the only one the command itself."""


@app.command()
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="docker-compose.yml if left out; others are laid over the first."),
    ] = None,
    env_file: Annotated[
        Path | None,
        typer.Option("--env-file", metavar="FILE", help="The variables; .env beside it, else .env.example."),
    ] = None,
    profiles: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME", help="Together if repeated; if left out, those of .env."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Hold a compose file against all that it names: files, variables, images, flags, ports, services, GPUs.

    Exit code 1 if anything is wrong. docs/stack-check.md lists the rules.
    """
    from zooserve_cli.stack.inspection import check_stack

    file, *overrides = files or _usual()
    for path in (file, *overrides):
        if not path.is_file():
            raise typer.BadParameter(f"{path} is not there.", param_hint="FILE")
    if env_file is not None and not env_file.is_file():
        raise typer.BadParameter(f"{env_file} is not there.", param_hint="--env-file")
    example = file.parent / ".env.example"
    given = env_file or next((path for path in (file.parent / ".env", example) if path.is_file()), None)
    report = check_stack(
        shown(file),
        shown(given) if given else None,
        shown(example) if example.is_file() else None,
        profiles or (),
        overrides,
    )
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1))
    else:
        for finding in report.findings:
            typer.secho(str(finding), fg=_COLOURS[finding.severity])
        typer.echo(report.summary())
    if not report.passes:
        raise typer.Exit(1)


def _usual() -> list[Path]:
    """docker-compose.yml, and what Compose lays over it unasked."""
    over = [Path(f"docker-compose.override.{ending}") for ending in ("yml", "yaml")]
    return [Path("docker-compose.yml"), *(path for path in over if path.is_file())]
