"""What `build`, `check` and `use` do, for both command lines: `zooserve`'s, and the one in NVIDIA's container."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zooserve.errors import EngineRefused
from zooserve_ensembles.buckets import BUCKETS
from zooserve_ensembles.engines.building import Options, built
from zooserve_ensembles.engines.encoder import VARIANT, Encoder, config_of, read_encoder, versions_of
from zooserve_ensembles.engines.gate import GoldenText
from zooserve_ensembles.engines.golden_texts import read_golden_texts
from zooserve_ensembles.engines.here import this_machine
from zooserve_ensembles.engines.identity import Machine
from zooserve_ensembles.engines.manifest import Manifest
from zooserve_ensembles.engines.pipelines import feeds_of, golden_file, tokenizer_buckets
from zooserve_ensembles.engines.placing import Candidate, candidates, is_in_place, placed, refusal
from zooserve_ensembles.engines.tensorrt_builder import TensorRtBuilder

__all__ = ["Checked", "build", "checked", "described", "golden_texts", "machine_of", "models_with_plans", "used"]

_GOLDEN = Path("ensembles", "golden")
"""Of a checkout, two folders above its model repository."""


@dataclass(frozen=True)
class Checked:
    """What was found of one model: a line for its reader, and whether Triton may be started on it."""

    model: str
    line: str
    good: bool


def build(
    repository: Path,
    model: str,
    version: str | None,
    golden: Path | None,
    options: Options,
    module: str | None,
    environ: Mapping[str, str],
    say: Callable[[str], object],
) -> tuple[Path, Manifest]:
    """Build the model's plan on this machine. Raises EngineRefused."""
    encoder = read_encoder(repository, model, version)
    texts = golden_texts(repository, encoder, golden)
    library = this_machine(environ)  # before the module, which may bring a library of its own
    builder = TensorRtBuilder(module)
    if library.tensorrt and library.tensorrt != builder.version:
        raise EngineRefused(
            f"{builder.module} is {builder.version}, and the library that Triton loads here is {library.tensorrt}: its "
            "plans would not load. Install the bindings of the library's version."
        )
    machine = Machine(library.gpus, builder.version, library.container, library.driver)
    return built(encoder, texts, machine, builder, options, say=say)


def golden_texts(repository: Path, encoder: Encoder, golden: Path | None) -> tuple[GoldenText, ...]:
    """The golden texts of the encoder's ensemble, through its tokenizer. Raises EngineRefused."""
    feeds = feeds_of(repository, encoder.model)
    if not feeds:
        raise EngineRefused(f"No ensemble of {repository} feeds {encoder.model} token ids, so no tokenizer is known.")
    place = golden or repository.absolute().parents[1] / _GOLDEN
    feed, file = (feeds[0], place) if place.is_file() else golden_file(feeds, place)
    if (buckets := tokenizer_buckets(feed, BUCKETS)) != encoder.buckets:
        raise EngineRefused(
            f"{feed.tokenizer.name} pads to {buckets}, and {encoder.model} warms {encoder.buckets}: a text of another "
            "length would find no profile. Make them one."
        )
    newest = versions_of(repository, feed.tokenizer.name)[-1:]
    tokenizer = feed.tokenizer.joinpath(*newest, "tokenizer.json")
    return read_golden_texts(file, tokenizer, encoder.buckets[-1])


def machine_of(environ: Mapping[str, str], module: str | None) -> Machine:
    """This machine, with the TensorRT of its library, or of a module. Raises EngineRefused."""
    return this_machine(environ, TensorRtBuilder(module).version if module else None)


def models_with_plans(repository: Path) -> list[str]:
    """The models that are served from a plan: those whose configuration for plans names TensorRT's backend."""
    folders = sorted(file.parents[1] for file in repository.glob(f"*/configs/{VARIANT}.pbtxt"))
    return [folder.name for folder in folders if config_of(folder).text("backend") == "tensorrt"]


def checked(repository: Path, models: Sequence[str], machine: Machine) -> Iterator[Checked]:
    """Each plan of the models: does this machine serve it, and is it in place?"""
    for model in models:
        encoder = read_encoder(repository, model)
        found = candidates(encoder, machine)
        served = any(candidate.fits and is_in_place(encoder, candidate) for candidate in found)
        for candidate in found:
            yield Checked(model, _said(encoder, candidate), good=True)
        if not any(candidate.fits for candidate in found):
            yield Checked(model, refusal(encoder, found), good=False)
        elif not served:
            yield Checked(model, f"{model}: no plan is in place; put it there with `use {model}`", good=False)


def used(repository: Path, models: Sequence[str], machine: Machine) -> Iterator[Checked]:
    """Put each model's fitting plan in place; where there is none, see that none is."""
    for model in models:
        try:
            candidate = placed(read_encoder(repository, model), machine)
            yield Checked(model, f"{model}: {candidate.plan.name} is in place", good=True)
        except EngineRefused as exc:
            yield Checked(model, str(exc), good=False)


def described(path: Path, manifest: Manifest) -> Iterator[str]:
    """What a build came to, line by line."""
    golden = manifest.golden
    yield f"{path}: {manifest.plan_bytes:,} bytes, built in {manifest.build_s} s, {manifest.precision}"
    yield (
        f"golden: {golden.texts} texts, least cosine to the reference {golden.least_cosine:.7f}, alone and in a full "
        f"batch {golden.least_together:.7f}"
    )
    for speed in manifest.speeds:
        yield f"{speed.length:4} tokens x {speed.batch:3}: {speed.batch_ms:8.3f} ms, {speed.texts_per_s:10,.0f} texts/s"


def _said(encoder: Encoder, candidate: Candidate) -> str:
    if not candidate.fits:
        return f"{encoder.model}: {candidate.plan.name} must not be served here: {', '.join(candidate.faults)}"
    where = "in place" if is_in_place(encoder, candidate) else "fits"
    return f"{encoder.model}: {candidate.plan.name} {where}"
