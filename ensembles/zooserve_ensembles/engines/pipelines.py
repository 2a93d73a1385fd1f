"""Who feeds an encoder: the ensembles of the repository that name it, and the tokenizer in front of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.config_text import BadConfig, Message, read_config

__all__ = ["Feed", "feeds_of", "golden_file", "tokenizer_buckets"]


@dataclass(frozen=True)
class Feed:
    """An ensemble, and the folder of the model whose token ids the encoder reads in it."""

    ensemble: str
    tokenizer: Path


def feeds_of(repository: Path, model: str) -> list[Feed]:
    """The ensembles in which the encoder reads another model's `input_ids`, by name."""
    return sorted(_feeds(repository, model), key=lambda feed: feed.ensemble)


def golden_file(feeds: list[Feed], folder: Path) -> tuple[Feed, Path]:
    """The golden answers of an ensemble that the encoder serves. Raises EngineRefused where there are none.

    A bulk ensemble gives the same answers as its interactive one, whose golden file it shares.
    """
    for feed in feeds:
        file = folder / f"{feed.ensemble.removesuffix('_bulk')}.json"
        if file.is_file() and '"vector"' in file.read_text(encoding="utf-8")[:100_000]:
            return feed, file
    names = ", ".join(feed.ensemble for feed in feeds) or "none"
    raise EngineRefused(
        f"{folder} has no golden vectors of an ensemble that this encoder serves ({names}): name the file with "
        "--golden. No plan is kept unproven."
    )


def tokenizer_buckets(feed: Feed, default: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths that the tokenizer pads to."""
    parameters = _config(feed.tokenizer / "config.pbtxt").mapped("parameters")
    if "buckets" not in parameters:
        return default
    return tuple(map(int, parameters["buckets"].text("string_value").split(",")))


def _feeds(repository: Path, model: str) -> Iterator[Feed]:
    for file in repository.glob("*/config.pbtxt"):
        text = file.read_text(encoding="utf-8")
        if "ensemble_scheduling" not in text or f'"{model}"' not in text:
            continue
        config = _config(file)
        steps = [step for part in config.messages("ensemble_scheduling") for step in part.messages("step")]
        givers = {edge: step.text("model_name") for step in steps for edge in _map(step, "output_map").values()}
        for step in steps:
            edge = _map(step, "input_map").get("input_ids")
            if step.text("model_name") == model and edge in givers:
                yield Feed(file.parent.name, repository / givers[edge])


def _map(step: Message, name: str) -> dict[str, str]:
    return {entry.text("key"): entry.text("value") for entry in step.messages(name)}


def _config(file: Path) -> Message:
    try:
        return read_config(file.read_text(encoding="utf-8"))
    except BadConfig as exc:
        raise EngineRefused(f"{file} is no configuration: {exc}.") from exc
