"""A whole embedding model from a version that `zooserve export` made: tokenizer, encoder, ensemble, catalogue entry."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zooserve.errors import ScaffoldRefused
from zooserve_ensembles.families.embed import embedding
from zooserve_ensembles.families.transformer import encoder, tokenizer
from zooserve_ensembles.folders import Files, ensemble_folder, member_folder
from zooserve_ensembles.pipeline import Dtype, Tensor
from zooserve_ensembles.scaffolding.parts import HEADER, card, golden, template

__all__ = ["Export", "catalogue_entry", "embedder_copies", "embedder_files", "embedder_names", "read_export"]

SHORTEST_BUCKET, LONGEST_BUCKET = 16, 8192
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Export:
    """An exported bi-encoder, as its folder tells."""

    folder: Path
    source: str
    max_tokens: int
    dimensions: int
    pad_id: int
    pooling: str
    """How a text's vector is made of its tokens', in words."""
    parity: str
    """How near the graph is to the original, in words."""
    made_by: str
    answers: Sequence[tuple[str, Sequence[float]]]
    """What the original answers, by text."""

    @property
    def buckets(self) -> tuple[int, ...]:
        """The lengths that texts are padded to: doubled from 16 on, and the longest that the model reads."""
        lengths, length = [], SHORTEST_BUCKET
        while length < self.max_tokens:
            lengths.append(length)
            length *= 2
        return (*lengths, self.max_tokens)


def read_export(folder: Path) -> Export:
    """What the folder holds. Raises ScaffoldRefused where it is no exported bi-encoder."""
    wanted = ("export.json", "golden.json", "model.onnx", "tokenizer.json")
    if missing := [name for name in wanted if not (folder / name).is_file()]:
        raise ScaffoldRefused(f"{folder} has no {', '.join(missing)}: name a folder that `zooserve export` made.")
    try:
        record, golden_answers = (json.loads((folder / name).read_text(encoding="utf-8")) for name in wanted[:2])
        if record["kind"] != "bi-encoder":
            raise ScaffoldRefused(f"{folder} holds a {record['kind']}; an embedding model is begun from a bi-encoder.")
        export = _export(folder, record, golden_answers)
    except (ValueError, KeyError, TypeError) as exc:
        raise ScaffoldRefused(
            f"export.json and golden.json in {folder} cannot be used ({exc!r}): export the version again."
        ) from exc
    if export.max_tokens > LONGEST_BUCKET:
        raise ScaffoldRefused(
            f"{folder} says that it reads {export.max_tokens} tokens; more than {LONGEST_BUCKET} are not served. "
            "Set max_seq_length in the checkpoint, and export it again."
        )
    return export


def _export(folder: Path, record: Mapping[str, Any], golden_answers: Mapping[str, Any]) -> Export:
    difference, texts = float(record["parity"]["max_difference"]), int(record["parity"]["texts"])
    return Export(
        folder=folder,
        source=Path(record["source"]).name,
        max_tokens=int(record["max_tokens"]),
        dimensions=int(record["dimensions"]),
        pad_id=int(record["pad_id"]),
        pooling=f"{record['pooling']} pooled" + (", L2 normalised" if record["normalize"] else ""),
        parity=f"largest difference from the original {difference:.1e} over {texts} texts",
        made_by=str(golden_answers["made_by"]),
        answers=[(row["input"], row["answer"]) for row in golden_answers["rows"]],
    )


def embedder_names(name: str) -> tuple[str, str, str]:
    """The folders that it needs."""
    return name, f"{name}_tokenizer", f"{name}_encoder"


def embedder_files(name: str, export: Export) -> Files:
    """Every file that is written; the version's own are copied."""
    _, first, second = embedder_names(name)
    vectors = (
        Tensor("sentence_embedding", Dtype.FP32, (export.dimensions,)),
        Tensor("token_embeddings", Dtype.FP32, (-1, export.dimensions)),
    )
    stage = tokenizer(first, name, buckets=export.buckets, pad_id=export.pad_id)
    graph = encoder(
        second,
        f"Second stage of {name}: token ids to a sentence vector and to token vectors ({export.source}).",
        outputs=vectors,
        buckets=export.buckets,
    )
    summary = f"Text to a vector of {export.dimensions} numbers ({export.source}), and the tokens that were read."
    return {
        **ensemble_folder(embedding(name, summary, stage, graph, width=export.dimensions), HEADER),
        **member_folder(stage, HEADER, {"model.py": template("tokenizer.py.txt", name=first)}),
        **member_folder(graph, HEADER, {}),
        **golden(name, export.made_by, TOLERANCE, _rows(export)),
        **card(
            name,
            f"text to a vector of {export.dimensions} dimensions, {export.pooling}",
            f"`text` BYTES [n, 1] to `embedding` FP32 [n, {export.dimensions}], `tokens` INT32 [n, 1]",
            limits=f"{export.max_tokens} tokens at most",
            exported_from=f"{export.source}, by `zooserve export`; {export.parity}",
        ),
    }


def embedder_copies(name: str, export: Export) -> Mapping[Path, Path]:
    """The version's files, by where they go."""
    _, first, second = embedder_names(name)
    return {
        Path(first) / "1" / "tokenizer.json": export.folder / "tokenizer.json",
        Path(second) / "1" / "model.onnx": export.folder / "model.onnx",
        Path(second) / "1" / "export.json": export.folder / "export.json",
    }


def catalogue_entry(name: str, export: Export, repository: str) -> str:
    """The model for `zoo.yaml`, below its `models:`; `repository` is the Triton repository's folder name."""
    _, first, second = embedder_names(name)
    return f"""
  - name: {name}
    optional: true
    task: embed
    runs_on: zoo
    triton: {{interactive: {name}}}
    encoder: {{interactive: {second}}}
    tokenizer: {repository}/{first}/1/tokenizer.json
    buckets: [{", ".join(map(str, export.buckets))}]
    limits: {{max_tokens: {export.max_tokens}, max_items: 2048}}
    dimensions: {export.dimensions}
    licence: to be filled in
    source: {json.dumps(export.source)}
    description: {export.dimensions} dimensions, {export.pooling}.
"""


def _rows(export: Export) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    return [
        ({"text": {"datatype": "BYTES", "data": [[text]]}}, {"embedding": [answer]}) for text, answer in export.answers
    ]
