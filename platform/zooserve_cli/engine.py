"""`zooserve engine`: TensorRT plans of the zoo's encoders, built on the GPU that serves them and bound to it."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zooserve.settings import Settings

if TYPE_CHECKING:
    from zooserve_ensembles.engines.command import Checked

__all__ = ["app"]

app = typer.Typer(
    help="Build TensorRT plans on this GPU, check them, put the fitting one in place.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Repository = Annotated[
    Path | None, typer.Option("--repository", metavar="DIR", help="A Triton model repository; the zoo if left out.")
]
_Models = Annotated[
    list[str] | None, typer.Argument(metavar="[MODEL]...", help="All with configs/plan.pbtxt if left out.")
]
_Module = Annotated[
    str | None, typer.Option("--module", help="The Python module that is TensorRT; if left out, its library is asked.")
]


@app.command()
def build(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An encoder of texts, such as embed_encoder.")],
    repository: _Repository = None,
    version: Annotated[str | None, typer.Option("--version", help="Of the model; the newest if left out.")] = None,
    golden: Annotated[
        Path | None, typer.Option("--golden", metavar="FILE|DIR", help="Golden vectors; the checkout's if left out.")
    ] = None,
    tf32: Annotated[
        bool, typer.Option("--tf32", help="Let matrix products round their inputs to 19 bits: faster, less exact.")
    ] = False,
    opt_batch: Annotated[
        int | None, typer.Option("--opt-batch", min=1, help="The batch to choose kernels for; the largest if left out.")
    ] = None,
    workspace_mb: Annotated[
        int, typer.Option("--workspace-mb", min=1, help="GPU memory that the build may take.")
    ] = 4096,
    module: Annotated[str | None, typer.Option("--module", help="The Python module that is TensorRT.")] = None,
) -> None:
    """Build a model's plan on this GPU, run the golden texts over it, and only then give it its name.

    Inside NVIDIA's container: `python3 -m zooserve_ensembles.engines build`. docs/engines.md shows how.
    """
    from zooserve_ensembles.engines.building import Options
    from zooserve_ensembles.engines.command import build as built
    from zooserve_ensembles.engines.command import described

    options = Options(tf32, opt_batch, workspace_mb << 20)
    path, manifest = built(_root(repository), model, version, golden, options, module, os.environ, typer.echo)
    for line in described(path, manifest):
        typer.echo(line)


@app.command()
def check(models: _Models = None, repository: _Repository = None, module: _Module = None) -> None:
    """Say which plans this machine may serve, and whether the fitting one is in place.

    Exit code 1 where a model has none that fits, or it is not in place.
    """
    from zooserve_ensembles.engines.command import checked, machine_of, models_with_plans

    root = _root(repository)
    _tell(checked(root, models or models_with_plans(root), machine_of(os.environ, module)))


@app.command()
def use(models: _Models = None, repository: _Repository = None, module: _Module = None) -> None:
    """Put the plan that fits this machine where Triton looks; where none does, see that none is there.

    Run it before a Triton that is started with --model-config-name=plan. Exit code 1 where a model is left without.
    """
    from zooserve_ensembles.engines.command import machine_of, models_with_plans, used

    root = _root(repository)
    _tell(used(root, models or models_with_plans(root), machine_of(os.environ, module)))


def _root(repository: Path | None) -> Path:
    return repository or Settings().resolved().zoo_repository


def _tell(results: "Iterable[Checked]") -> None:
    good = True
    for result in results:
        typer.secho(result.line, fg=None if result.good else "red", err=not result.good)
        good = good and result.good
    if not good:
        raise typer.Exit(1)
