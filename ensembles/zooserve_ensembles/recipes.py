"""The builds that `weights.lock` names, and a fingerprint that changes when what they make may change."""

import hashlib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

__all__ = ["RECIPES", "Build", "fingerprint"]

Build = Callable[[Mapping[str, Path]], bytes]
"""Takes source files by base name, returns the file it makes."""


def _deferred(module: str, function: str = "build") -> Build:
    """The function of that module, imported when it is first called: ONNX takes 0.3 s to load."""

    def build(inputs: Mapping[str, Path]) -> bytes:
        made: bytes = getattr(import_module(f"zooserve_ensembles.graphs.{module}"), function)(inputs)
        return made

    return build


RECIPES: Mapping[str, Build] = {
    "chat_template": _deferred("chat", "build_template"),
    "chat_tokenizer": _deferred("chat"),
    "cross_encoder": _deferred("cross_encoder"),
    "file_type_labels": _deferred("file_type"),
    "injection_head": _deferred("injection_head"),
    "int8_encoder": _deferred("int8_encoder"),
    "language_automaton": _deferred("language", "build_automaton"),
    "language_graph": _deferred("language"),
    "language_labels": _deferred("language", "build_labels"),
    "multilingual_encoder": _deferred("multilingual_encoder"),
    "sentence_encoder": _deferred("sentence_encoder"),
    "sparse_encoder": _deferred("sparse_encoder"),
    "token_rarity": _deferred("trees", "build_rarity"),
    "toxicity_graph": _deferred("toxicity"),
    "toxicity_vocabulary": _deferred("toxicity_vocabulary"),
    "tree_ranker": _deferred("trees"),
}


def fingerprint() -> str:
    """SHA-256 over the builders' code and the committed heads: an edit there makes every build stale."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted([*(package / "graphs").glob("*.py"), *(package / "heads").glob("*.*")]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
