"""Are the vectors right? Through the router against the reference's golden vectors, and alone against in a batch of 32.

python benchmarks/parity.py [--router URL]
"""

import argparse
import base64
import json
import sys
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
from load import add_addresses, texts_of_words

GOLDEN = Path(__file__).parents[1] / "ensembles/golden/embed.json"
BATCH = 32

Vectors = npt.NDArray[np.float32]


def decoded(text: str) -> Vectors:
    """A vector from base64."""
    return np.frombuffer(base64.b64decode(text), "<f4")


def embedded(http: httpx.Client, texts: list[str]) -> Vectors | None:
    """One request's vectors; None if a text is beyond the model's length, which the route refuses."""
    body = {"model": "embed", "input": texts, "encoding_format": "base64"}
    answer = http.post("/v1/embeddings", json=body)
    if answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded":
        return None
    answer.raise_for_status()
    return np.stack([decoded(item["embedding"]) for item in answer.json()["data"]])


def cosines(one: Vectors, other: Vectors) -> Vectors:
    """Row by row."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(axis=1) / norms, dtype=np.float32)


def against_golden(http: httpx.Client) -> tuple[Vectors, int]:
    """Each golden text alone: cosines, and how many were refused as too long."""
    pairs = [
        (vectors[0], decoded(row["vector"]))
        for row in json.loads(GOLDEN.read_text())["rows"]
        if (vectors := embedded(http, [row["text"]])) is not None
    ]
    rows = len(json.loads(GOLDEN.read_text())["rows"])
    return cosines(np.stack([one for one, _ in pairs]), np.stack([other for _, other in pairs])), rows - len(pairs)


def alone_against_batch(http: httpx.Client) -> Vectors:
    """Texts of many lengths, one request each and then 32 in a request."""
    texts = [text for words in (3, 8, 20, 45, 90, 180) for text in texts_of_words(words, BATCH // 2)]
    np.random.default_rng(5).shuffle(texts)
    alone = [embedded(http, [text]) for text in texts]
    together = [embedded(http, texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    return cosines(
        np.concatenate([v for v in alone if v is not None]), np.concatenate([v for v in together if v is not None])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_addresses(parser)
    given = parser.parse_args()
    with httpx.Client(base_url=given.router, timeout=60) as http:
        golden, refused = against_golden(http)
        batched = alone_against_batch(http)
    print("| compared | texts | least cosine | bar |\n|---|---|---|---|")
    print(f"| through the router with reference ({refused} too long) | {len(golden)} | {golden.min():.7f} | 0.999 |")
    print(f"| alone with in a batch of {BATCH} | {len(batched)} | {batched.min():.7f} | 0.99999 |")
    sys.exit(not (golden.min() >= 0.999 and batched.min() >= 0.99999))


if __name__ == "__main__":
    main()
