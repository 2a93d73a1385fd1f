"""`zooserve leaf`: does a leaf speak the contract, and would a model directory make one that does?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from zooserve.leaf.conformance import Report as Conformance
    from zooserve_ensembles.checking import Report as Directories

__all__ = ["app"]

app = typer.Typer(
    help="Hold a leaf, or its model directory, against TensorRT-LLM's llmapi contract.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def leaf() -> None:
    """Keeps `check` a subcommand: Typer would make the only one the command itself."""


@app.command()
def check(
    target: Annotated[
        str, typer.Argument(metavar="URL|DIR", help="http(s)://HOST:PORT or grpc://HOST:PORT of a Triton, or a folder.")
    ],
    model: Annotated[str, typer.Option("--model", help="URL: the Triton model.")] = "tensorrt_llm",
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="URL", help="URL: where its metrics are, to see slots freed.")
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", help="URL: a rendered prompt that the model answers at length.")
    ] = "Once upon a time there was a dragon who",
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="URL: seconds for each probe.")] = 60.0,
    launch: Annotated[
        Path | None,
        typer.Option("--launch", metavar="FILE", help="DIR: the script that starts it; launch.sh inside it."),
    ] = None,
    release: Annotated[
        str | None, typer.Option("--release", help="DIR: TensorRT-LLM's release, where release.yaml does not say it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Probe a running leaf for each known trap, or check a model directory's files.

    Exit code 1 if anything is wrong. docs/leaf.md lists the probes and the rules.
    """
    if Path(target).is_dir():
        _show_directories(_directories(Path(target), launch, release), as_json)
    else:
        _show_conformance(_conformance(target, model, metrics, prompt, timeout_s), as_json)


def _directories(folder: Path, launch: Path | None, release: str | None) -> "Directories":
    from zooserve.leaf.release import known_releases
    from zooserve_ensembles.leaf_directory import check_leaf_directories

    if launch is not None and not launch.is_file():
        raise typer.BadParameter(f"{launch} is not there.", param_hint="--launch")
    if release is not None and release not in known_releases():
        known = ", ".join(known_releases())
        raise typer.BadParameter(f"release {release} is not recorded; known: {known}.", param_hint="--release")
    return check_leaf_directories(folder, launch, release)


def _show_directories(report: "Directories", as_json: bool) -> None:
    from zooserve_ensembles.checking import Severity

    colours = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
    faults = report.summary().partition(": ")[2]
    noun = "model directory" if report.models == 1 else "model directories"
    summary = f"{report.models} {noun}: {faults}"
    if as_json:
        findings = [finding.as_json() for finding in report.findings]
        typer.echo(json.dumps({"directories": report.models, "findings": findings, "summary": summary}, indent=1))
    else:
        for finding in report.findings:
            typer.secho(str(finding), fg=colours[finding.severity])
        typer.echo(summary)
    if not report.passes():
        raise typer.Exit(1)


def _conformance(target: str, model: str, metrics: str | None, prompt: str, timeout_s: float) -> "Conformance":
    import asyncio

    from zooserve.leaf.conformance import check_leaf, opened_endpoint, wire_of

    try:
        wire = wire_of(target)
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="URL|DIR") from exc

    async def probed() -> "Conformance":
        async with opened_endpoint(wire, model, metrics) as endpoint:
            return await check_leaf(endpoint, prompt, timeout_s)

    return asyncio.run(probed())


def _show_conformance(report: "Conformance", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1))
    else:
        from rich.console import Console
        from rich.table import Table

        colours = {"pass": "green", "fail": "red", "not applicable": "yellow"}
        table = Table(box=None, pad_edge=False)
        for column in ("probe", "trap", "result", "why"):
            table.add_column(column, overflow="fold")
        for result in report.results:
            told = f"[{colours[result.outcome]}]{result.outcome}[/]"
            table.add_row(result.probe, str(result.trap or ""), told, result.why.replace("[", "\\["))
        Console(highlight=False).print(table)
        typer.echo(report.summary())
    if not report.passes:
        raise typer.Exit(1)
