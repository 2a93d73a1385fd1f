"""`zooserve new`: a model or an ensemble to begin with, which works at once."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from zooserve.settings import Settings
from zooserve_cli.places import shown

__all__ = ["app"]

app = typer.Typer(
    help="Begin a new model or ensemble, which works at once.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and underscores.")]
Directory = Annotated[
    Path | None, typer.Option("--directory", metavar="DIR", help="A Triton model repository; the zoo if left out.")
]


@app.command()
def model(
    name: Name,
    backend: Annotated[
        str,
        typer.Option(help="onnxruntime or python; for tensorrt, pytorch, openvino, fil, vllm, tensorrtllm its place."),
    ] = "onnxruntime",
    exported: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="A version that `zooserve export` made: a whole embedding model."
        ),
    ] = None,
    directory: Directory = None,
) -> None:
    """Begin a model: its configuration, a small model that works, its card, golden answers and their test."""
    if exported is not None:
        _embedder(name, exported, directory)
        return
    from zooserve_ensembles.scaffolding.models import model_files, runs_here
    from zooserve_ensembles.scaffolding.placing import place

    root = _root(directory, [name])
    files = model_files(name, backend)
    place(root, files)
    _told(root, name, list(files), served=runs_here(backend))


@app.command()
def ensemble(name: Name, directory: Directory = None) -> None:
    """Begin an ensemble: text through a Python stage and an ONNX model, its card, golden answers and their test."""
    from zooserve_ensembles.scaffolding.ensembles import ensemble_files, ensemble_names
    from zooserve_ensembles.scaffolding.placing import place

    root = _root(directory, ensemble_names(name))
    files = ensemble_files(name)
    place(root, files)
    _told(root, name, list(files), served=True)


def _embedder(name: str, exported: Path, directory: Path | None) -> None:
    from zooserve_ensembles.scaffolding.embedders import (
        catalogue_entry,
        embedder_copies,
        embedder_files,
        embedder_names,
        read_export,
    )
    from zooserve_ensembles.scaffolding.placing import place

    export = read_export(exported)
    root = _root(directory, embedder_names(name))
    files, copies = embedder_files(name, export), embedder_copies(name, export)
    place(root, files, copies)
    entry = catalogue_entry(name, export, root.name)
    if directory is None:
        _enter(name, entry)
    else:
        typer.echo(f"For the catalogue, below `models:`{entry}")
    _told(root, name, [*files, *copies], served=True)
    if directory is None:
        typer.echo(f"  zooserve up --models default,{name}")


def _enter(name: str, entry: str) -> None:
    """Add the entry at the catalogue's end, or say that it must be added by hand."""
    from zooserve.catalogue import CatalogueError, load_catalogue

    catalogue = Settings().resolved().catalogue
    before = catalogue.read_bytes()
    catalogue.write_bytes(before.rstrip() + b"\n" + entry.encode())
    try:
        load_catalogue(catalogue)
    except CatalogueError:  # `models` is not its last key
        catalogue.write_bytes(before)
        typer.echo(f"Add this to {shown(catalogue)}, below `models:`{entry}")
    else:
        typer.echo(f"Added {name} to {shown(catalogue)}, optional; its licence is yours to fill in.")


def _root(directory: Path | None, names: Sequence[str]) -> Path:
    """Where they go. Raises ScaffoldRefused for a name that cannot be used there."""
    from zooserve.catalogue import load_catalogue
    from zooserve_ensembles.scaffolding.names import refuse_names

    settings = Settings().resolved()
    root = directory or settings.zoo_repository
    taken = {folder.name for folder in root.iterdir()} if root.is_dir() else set()
    refuse_names(names, taken if directory else taken | set(load_catalogue(settings.catalogue).names()))
    return root


def _told(root: Path, name: str, files: Sequence[Path], *, served: bool) -> None:
    folder = shown(root)
    typer.echo(f"Made in {folder}:")
    for path in sorted(files):
        typer.echo(f"  {path}")
    typer.echo("Next:")
    typer.echo(f"  zooserve ensembles check {shlex.quote(str(folder))}")
    if served:
        typer.echo(f"  python -m pytest {shlex.quote(str(folder / name))}")
    else:
        typer.echo(f"  read {folder / name / 'README.md'}: what to put into {name}/1")
