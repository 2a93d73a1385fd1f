"""Real passages by the ten thousand, of texts that are on the machine: no download, none twice.

Python's own documentation as the demo reads it, then the docstrings of the installed packages, cut as the demo cuts its
documents. Cut once, kept in the cache folder for the next run.

    python benchmarks/real_chunks.py [--count 20000]
"""

import argparse
import ast
import functools
import hashlib
import json
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from zooserve.sdk.splitting import TokenCount
from zooserve.settings import Settings
from zooserve_cli.rag.chunks import cut
from zooserve_cli.rag.corpus import Page, read_corpus

__all__ = ["TOKENIZER", "RealChunk", "length_table", "quick_count", "real_chunks", "token_lengths"]

TOKENIZER = Path(__file__).parents[1] / "model_repository/zoo/embed_tokenizer/1/tokenizer.json"
MOST_TOKENS = 254
"""The embedding model reads 256, two of them its own."""
_SHORTEST_CHARACTERS = 200
_WORDS = re.compile(r"\S+")


@dataclass(frozen=True)
class RealChunk:
    """A passage and which of the two collections it comes from."""

    kind: str
    text: str


def real_chunks(count: int) -> list[RealChunk]:
    """`count` different passages, always the same ones on one installation. Raises ValueError if there are fewer."""
    kept = Settings().resolved().cache_dir / f"benchmark-passages-{count}.jsonl"
    if kept.is_file():
        return [RealChunk(**json.loads(line)) for line in kept.read_text(encoding="utf-8").splitlines()]
    found = list(islice(_different(_cut_all()), count))
    if len(found) < count:
        raise ValueError(f"this machine holds {len(found)} passages, not {count}: ask for fewer")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("".join(json.dumps(vars(chunk)) + "\n" for chunk in found), encoding="utf-8")
    return found


def _cut_all() -> Iterator[RealChunk]:
    tokens = quick_count(Tokenizer.from_file(str(TOKENIZER)))
    sources = (("Python", read_corpus()), ("packages", _packages()))
    for kind, documents in sources:
        for chunk in cut(documents, MOST_TOKENS, tokens):
            yield RealChunk(kind, chunk.embedded)


def _different(chunks: Iterable[RealChunk]) -> Iterator[RealChunk]:
    seen = set[bytes]()
    for chunk in chunks:
        digest = hashlib.sha256(chunk.text.encode()).digest()
        # The SDK refuses NULs, which some docstrings hold.
        if digest not in seen and len(chunk.text) >= _SHORTEST_CHARACTERS // 4 and "\0" not in chunk.text:
            seen.add(digest)
            yield chunk


def quick_count(tokenizer: Tokenizer) -> TokenCount:
    """Tokens of a text, by its words: a BERT tokenizer never joins two, so the sum is exact, and words recur."""
    tokenizer.no_padding()
    tokenizer.no_truncation()

    @functools.lru_cache(maxsize=200_000)
    def of_word(word: str) -> int:
        return len(tokenizer.encode(word, add_special_tokens=False).ids)

    return lambda text: sum(map(of_word, _WORDS.findall(text)))


def _packages() -> Iterator[Page]:
    """A document for each module that has something to say, read from its source without importing it."""
    root = Path(sysconfig.get_path("purelib"))
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError, OSError):  # templates, other Pythons, other encodings
            continue
        text = "\n\n".join(_docstrings(tree))
        if len(text) >= _SHORTEST_CHARACTERS:
            yield Page(name, name, text)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def token_lengths(texts: Sequence[str], most: int = 256) -> list[int]:
    """Tokens of each as the model reads them: its own two counted, cut at what it reads."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(most)
    return [len(encoded.ids) for encoded in tokenizer.encode_batch_fast(list(texts))]


def length_table(chunks: Sequence[RealChunk], lengths: Sequence[int]) -> str:
    """How long they are and where they come from, in two lines."""
    kinds = Counter(chunk.kind for chunk in chunks)
    p10, p50, p90, p99 = np.quantile(lengths, (0.1, 0.5, 0.9, 0.99))
    origin = ", ".join(f"{kind} {number:,}" for kind, number in kinds.items())
    characters = np.mean([len(chunk.text) for chunk in chunks])
    return (
        f"{len(chunks):,} passages ({origin}), {characters:.0f} characters on average.\n"
        f"Tokens: mean {np.mean(lengths):.0f}, p10 {p10:.0f}, p50 {p50:.0f}, p90 {p90:.0f}, p99 {p99:.0f}, "
        f"most {max(lengths)}; {sum(lengths):,} in all."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    chunks = real_chunks(parser.parse_args().count)
    print(length_table(chunks, token_lengths([chunk.text for chunk in chunks])))


if __name__ == "__main__":
    main()
