"""Rules of tokenizers: the ids that one gives must be rows of the table that the encoder behind it looks them up in."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.onnx_file import Graph
from zooserve_ensembles.checking.repository import Model, Repository
from zooserve_ensembles.checking.weights import is_pointer
from zooserve_ensembles.checking.wiring import wire

__all__ = ["RULES", "vocabulary_findings"]

TOKENIZER = Rule("tokenizer-unreadable", Severity.ERROR, "A tokenizer.json is no tokenizer, or contradicts itself")
VOCABULARY = Rule(
    "vocabulary-mismatch",
    Severity.ERROR,
    "A tokenizer gives ids that the encoder's word table does not have, or so few that it is another model's",
)

RULES = (TOKENIZER, VOCABULARY)

_WHOLE = ("Cast", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Clip", "Expand", "Transpose")
# The table's place among the inputs of an operation, and that of the ids.
_LOOKUPS = {
    "Gather": (0, 1),
    "GatherBlockQuantized": (0, 1),
    "EmbedLayerNormalization": (2, 0),
    "QEmbedLayerNormalization": (2, 0),
}
_WORD_IDS = re.compile(r"ids?$|tokens?$|input", re.I)
_OTHER_IDS = re.compile(r"type|segment|position|mask|length|count", re.I)
# Tables are often padded to a round number of rows: T5's, Qwen's and Phi's by 0.1 to 1.8%.
_FEWEST_USED = 0.9
# What another shape of content raises, where it is read as if it were the right one.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError)


@dataclass(frozen=True)
class Words:
    """What a tokenizer's file says of its ids."""

    file: Path
    highest: int
    highest_token: str
    fault: str = ""

    @property
    def size(self) -> int:
        """How many rows a table needs for its ids."""
        return self.highest + 1


def vocabulary_findings(repository: Repository) -> Iterator[Finding]:
    """Every tokenizer by itself, and each against the tables that its ids are looked up in."""
    words = {model.name: found for model in repository.stages if (found := _words_of(model)) is not None}
    for name, found in words.items():
        if found.fault:
            yield TOKENIZER.at(Place(found.file), f"{name}'s {found.file.name}: {found.fault}")
    told: set[tuple[str, str]] = set()
    for ensemble in repository.ensembles:
        for giver, taker, tensors in _flows(ensemble, repository):
            found = words.get(giver.name)
            if found is None or found.fault or (giver.name, taker.name) in told:
                continue
            told.add((giver.name, taker.name))
            yield from _against(giver, found, taker, tensors)


def _flows(ensemble: Model, repository: Repository) -> Iterator[tuple[Model, Model, list[str]]]:
    """Each pair of steps between which whole numbers flow, with the names that the taker has for them."""
    wiring = wire(ensemble, repository)
    given, flows = wiring.given(), dict[tuple[str, str], list[str]]()
    for end in wiring.takers:
        giver = given.get(end.edge)
        if giver is None or giver.step < 0 or end.step < 0 or end.tensor is None:
            continue
        if end.tensor.dtype in ("INT64", "INT32"):
            pair = wiring.steps[giver.step].model_name, wiring.steps[end.step].model_name
            flows.setdefault(pair, []).append(end.name)
    for (giver_name, taker_name), names in flows.items():
        if giver_name in repository.models and taker_name in repository.models:
            yield repository.models[giver_name], repository.models[taker_name], names


def _against(giver: Model, words: Words, taker: Model, tensors: list[str]) -> Iterator[Finding]:
    named = [name for name in tensors if _WORD_IDS.search(name) and not _OTHER_IDS.search(name)]
    for version in taker.served:
        graph = taker.graph(version)
        # Names tell little in a stranger's model: the words' table is then the largest one.
        rows = max((table_rows(graph, name) for name in named or tensors), default=0) if graph else 0
        if not rows:
            continue
        table = f"the word table of {taker.name}/{version}/{taker.onnx_file(version).name} has {rows:,} rows"
        if words.size > rows:
            yield VOCABULARY.at(
                Place(words.file),
                f"{giver.name} gives ids up to {words.highest:,} ({words.highest_token}), but {table}: texts with such "
                "a token fail. Take tokenizer and encoder from the same checkpoint",
            )
        elif named and words.size < rows * _FEWEST_USED:
            yield VOCABULARY.at(
                Place(words.file),
                f"{giver.name} knows {words.size:,} ids, but {table}: it is another model's tokenizer, and every "
                "answer is wrong. Take both from the same checkpoint",
            )


def table_rows(graph: Graph, name: str) -> int:
    """Rows of the largest table that an input's values are looked up in; 0 where there is none."""
    same, rows = {name}, 0
    # A quantised table is a node between the weights and the lookup.
    unpacked = {
        node.outputs[0]: node.inputs[0] for node in graph.nodes if node.operation == "DequantizeLinear" and node.inputs
    }
    for node in graph.nodes:  # in the order of their computation
        if node.operation in _LOOKUPS:
            table, ids = _LOOKUPS[node.operation]
            if len(node.inputs) > max(table, ids) and node.inputs[ids] in same:
                found = graph.initializers.get(unpacked.get(node.inputs[table], node.inputs[table]))
                rows = max(rows, found.dims[0] if found is not None and len(found.dims) == 2 else 0)
        elif node.operation in _WHOLE and node.inputs and node.inputs[0] in same:
            same.update(node.outputs)
    return rows


def _words_of(model: Model) -> Words | None:
    for version in reversed(model.served):
        folder = model.version_folder(version)
        for name, read in (("tokenizer.json", _tokenizer), ("vocabulary.json", _word_list), ("vocab.txt", _lines)):
            places = (folder / name, *sorted(folder.glob(f"*/{name}")), model.folder / name)
            file = next((place for place in places if place.is_file()), None)
            if file is not None:
                return None if is_pointer(file) else read(file)
    return None


def _tokenizer(file: Path) -> Words | None:
    digest = file.stat()
    return _tokenizer_once(file, digest.st_size, digest.st_mtime_ns)


@cache
def _tokenizer_once(file: Path, size: int, changed_ns: int) -> Words | None:
    try:
        content = json.loads(file.read_bytes())
        ids = _token_ids(content)
        fault = _contradiction(content, ids)
    except _UNREADABLE:
        return Words(file, 0, "", "it cannot be read as a tokenizer: copy it again")
    if not ids:
        return None
    token, highest = max(ids.items(), key=lambda item: item[1])
    return Words(file, highest, token, fault)


def _token_ids(content: Any) -> Mapping[str, int]:
    vocabulary = content["model"].get("vocab", {})
    if isinstance(vocabulary, list):  # Unigram: pairs of a token and its score, in the order of their ids
        ids = {token: index for index, (token, *_) in enumerate(vocabulary)}
    else:
        ids = {str(token): int(number) for token, number in vocabulary.items()}
    return ids | {token["content"]: int(token["id"]) for token in content.get("added_tokens") or ()}


def _contradiction(content: Any, ids: Mapping[str, int]) -> str:
    """Where the frame put around each text names other ids than the vocabulary."""
    frame = content.get("post_processor") or {}
    for token, entry in (frame.get("special_tokens") or {}).items():
        for name, number in zip(entry.get("tokens", ()), entry.get("ids", ()), strict=False):
            if ids.get(name, number) != number:
                return (
                    f"its post_processor frames each text with {token} as id {number}, but its vocabulary has {name} "
                    f"as {ids[name]}: take the file from one checkpoint"
                )
    return ""


def _word_list(file: Path) -> Words | None:
    """The word list of our word stage: ids of `num_words` and more are not used."""
    try:
        content = json.loads(file.read_bytes())
        used = [(number, word) for word, number in content["words"].items() if number < content["num_words"]]
    except _UNREADABLE:
        return None
    return Words(file, *max(used)) if used else None


def _lines(file: Path) -> Words | None:
    # Not splitlines: a token may be one of Unicode's own separators.
    tokens = file.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
    return Words(file, len(tokens) - 1, tokens[-1]) if tokens else None
