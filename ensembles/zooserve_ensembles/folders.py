"""The files of a model's folder: its configuration as text, version 1, the samples that warm it.

`rendering` makes the zoo's of them, `scaffolding` those of a new model; the header says whose they are to edit.
"""

from collections.abc import Mapping
from pathlib import Path

from zooserve_ensembles.configuration import Commented, ensemble_config, member_config
from zooserve_ensembles.member import Member
from zooserve_ensembles.pbtxt import comment, pbtxt
from zooserve_ensembles.pipeline import Pipeline

__all__ = ["Files", "ensemble_folder", "member_folder"]

Files = Mapping[Path, bytes]
"""The content of each file, by its path in the repository; the first part is the model's folder."""


def ensemble_folder(pipeline: Pipeline, header: str) -> Files:
    """The folder of an ensemble: without one for a version too it never appears in Triton's index."""
    folder = Path(pipeline.name)
    return {folder / "config.pbtxt": _text(ensemble_config(pipeline), header), folder / "1" / ".gitkeep": b""}


def member_folder(member: Member, header: str, version: Mapping[str, bytes]) -> Files:
    """The folder of a model, its variants and its version 1 with the files of `version`."""
    folder = Path(member.name)
    samples = {name: content for warmup in member.warmups for name, content in warmup.files.items()}
    return {
        folder / "config.pbtxt": _text(member_config(member), header),
        **{
            folder / "configs" / f"{name}.pbtxt": _text(member_config(variant), header)
            for name, variant in member.variants.items()
        },
        **{folder / "1" / name: content for name, content in version.items()},
        **{folder / "warmup" / name: content for name, content in samples.items()},
    }


def _text(made: Commented, header: str) -> bytes:
    return ("\n".join([header, *comment(made.summary)]) + "\n" + pbtxt(made.config, made.comments)).encode()
