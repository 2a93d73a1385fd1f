"""`zooserve export`: a checkpoint of sentence-transformers as a version that the zoo can serve."""

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["export"]


def export(
    model: Annotated[str, typer.Argument(help="A checkpoint: a local folder, or a name on the hub.")],
    to: Annotated[Path, typer.Option("--to", help="The version folder to make; it must be new or empty.")],
    revision: Annotated[str | None, typer.Option(help="The hub's branch, tag or commit.")] = None,
    max_difference: Annotated[
        float, typer.Option(min=0, help="Refuse when any value differs more than this from the original's.")
    ] = 1e-4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Export a bi-encoder or cross-encoder to ONNX, compare it with the original, and record how it was made."""
    from zooserve_ensembles.exporting.version import export_version

    exported = export_version(model, to, revision=revision, max_difference=max_difference)
    if as_json:
        typer.echo(json.dumps(exported.record, indent=1))
        return
    parity = exported.record["parity"]
    typer.echo(
        f"{exported.record['kind']} in {exported.folder}; max difference from the original "
        f"{parity['max_difference']:.2e} over {parity['texts']} texts of up to {parity['longest_tokens']} tokens."
    )
