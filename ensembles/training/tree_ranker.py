"""Trains the tree ranker: gradient boosting over the features of `zooserve_ensembles.ranking_features`.

    PYTHONPATH=ensembles python -m training.tree_ranker --data FOLDER --zoo model_repository/zoo

Make the data with `python -m evaluation.retrieval_data FOLDER`. Needs an environment of its own: lightgbm 4.7.0,
onnxruntime, onnx, tokenizers. Four variants are trained on the train questions of `debian` and `manuals` (two
objectives, with and without features that look at the other candidates) and printed with their MRR@10 on the dev
questions; what is written is the one named by `--objective`, without such features. Rows and features are drawn by a
seed: the same data give the same trees.

Writes `tree_ranker.txt` (LightGBM's text, which Triton's FIL backend reads as it is), `rarity.npy`, and
`tree_ranker.json` with the plan, the dev figures and recorded predictions that tests hold the graph against.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from evaluation.bench import CANDIDATES, Bench, Models, open_bench
from evaluation.measures import reciprocal_ranks
from evaluation.retrieval_data import Split
from zooserve_ensembles.graphs.trees import HEAD, RARITY
from zooserve_ensembles.late_interaction import Floats
from zooserve_ensembles.ranking_features import FEATURES, rank_features

VOCABULARY = 30_522
RECORDED = 64


@dataclass(frozen=True)
class Plan:
    """What the training depends on; not searched, but for the objective and the set of features."""

    trees: int = 150
    leaves: int = 15
    learning_rate: float = 0.05
    smallest_leaf: int = 50
    feature_share: float = 0.7
    row_share: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Table:
    """Features [questions, candidates, columns] and which candidate is the answer."""

    features: npt.NDArray[np.float64]
    relevant: npt.NDArray[np.bool_]

    def with_relations(self) -> "Table":
        """With each column's difference to the best candidate's, and the rank by it, for the first six."""
        columns = self.features[:, :, :6]
        below = columns - columns.max(axis=1, keepdims=True)
        ranks = np.argsort(np.argsort(-columns, axis=1, kind="stable"), axis=1)
        return Table(np.concatenate([self.features, below, ranks], axis=2), self.relevant)


def rarity_of(benches: Iterable[Bench]) -> Floats:
    """Inverse document frequency of every token over the passages that train questions ask for, in halves."""
    documents = [
        bench.passage_texts.ids(question.passage)
        for bench in benches
        for question in bench.questions
        if question.split == "train"
    ]
    counts = np.zeros(VOCABULARY)
    for ids in documents:
        counts[np.unique(ids)] += 1
    return np.log(1 + (len(documents) - counts + 0.5) / (counts + 0.5)).astype(np.float16)


def table(bench: Bench, split: Split, rarity: Floats) -> Table:
    """The features of every candidate of every question of a split."""
    searches = list(bench.searches(split))
    features = [rank_features(*bench.rows(search), rarity)[1:] for search in searches]
    return Table(np.array(features, np.float64), np.array([search.relevant for search in searches]))


def fit(tables: Sequence[Table], objective: str, plan: Plan) -> lightgbm.Booster:
    """The trees; questions whose answer was not found teach nothing and are left out."""
    kept = [table.relevant.any(axis=1) for table in tables]
    features = np.concatenate([table.features[keep] for table, keep in zip(tables, kept, strict=True)])
    labels = np.concatenate([table.relevant[keep] for table, keep in zip(tables, kept, strict=True)])
    data = lightgbm.Dataset(
        features.reshape(-1, features.shape[2]),
        labels.ravel().astype(np.int32),
        group=[CANDIDATES] * len(features),
        feature_name=list(FEATURES) if features.shape[2] == len(FEATURES) else "auto",
    )
    settings = {
        "objective": objective,
        "num_leaves": plan.leaves,
        "learning_rate": plan.learning_rate,
        "min_data_in_leaf": plan.smallest_leaf,
        "feature_fraction": plan.feature_share,
        "bagging_fraction": plan.row_share,
        "bagging_freq": 1,
        "seed": plan.seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbose": -1,
    }
    return lightgbm.train(settings, data, num_boost_round=plan.trees)


def quality(booster: lightgbm.Booster, table: Table) -> float:
    """MRR@10 of the order by the trees."""
    rows = table.features.reshape(-1, table.features.shape[2])
    scores = np.asarray(booster.predict(rows, raw_score=True)).reshape(table.relevant.shape)
    return round(float(reciprocal_ranks(scores, table.relevant).mean()), 4)


def variants(train: Sequence[Table], dev: Mapping[str, Table], plan: Plan) -> dict[str, dict[str, float]]:
    """Dev figures by what was trained, and those of the bi-encoder's own order."""
    found = {"bi-encoder": {name: _as_found(table) for name, table in dev.items()}}
    for objective in ("binary", "lambdarank"):
        for kind, of in (("alone", lambda table: table), ("with relations", Table.with_relations)):
            booster = fit([of(table) for table in train], objective, plan)
            found[f"{objective}, {kind}"] = {name: quality(booster, of(table)) for name, table in dev.items()}
    return found


def _as_found(table: Table) -> float:
    order = np.broadcast_to(-np.arange(float(CANDIDATES)), table.relevant.shape)
    return round(float(reciprocal_ranks(order, table.relevant).mean()), 4)


def recorded(booster: lightgbm.Booster, table: Table) -> dict[str, Any]:
    """Rows of features, and LightGBM's own predictions for them."""
    rows = table.features.reshape(-1, len(FEATURES))
    rows = rows[:: len(rows) // RECORDED][:RECORDED]
    return {"features": rows.tolist(), "predictions": np.asarray(booster.predict(rows)).tolist()}


def main() -> None:
    """Train the variants, print their dev quality, write the chosen one."""
    parser = argparse.ArgumentParser(description="Train the tree ranker.")
    parser.add_argument("--data", type=Path, required=True, help="what evaluation.retrieval_data wrote")
    parser.add_argument("--zoo", type=Path, default=Path("model_repository/zoo"), help="with the weights fetched")
    parser.add_argument("--objective", choices=("binary", "lambdarank"), default="binary")
    parser.add_argument("--output", type=Path, default=HEAD)
    arguments = parser.parse_args()
    plan, models = Plan(), Models.below(arguments.zoo)
    benches = [open_bench(arguments.data, name, models) for name in ("debian", "manuals")]
    rarity = rarity_of(benches)
    np.save(arguments.output.with_name(RARITY.name), rarity)
    train = [table(bench, "train", rarity) for bench in benches]
    dev = {bench.name: table(bench, "dev", rarity) for bench in benches}
    figures = variants(train, dev, plan)
    json.dump(figures, sys.stdout, indent=1)
    booster = fit(train, arguments.objective, plan)
    booster.save_model(arguments.output)
    about = {
        "made_by": "ensembles/training/tree_ranker.py",
        "lightgbm": lightgbm.__version__,
        "objective": arguments.objective,
        "plan": asdict(plan),
        "features": FEATURES,
        "gain": dict(zip(FEATURES, np.round(booster.feature_importance("gain"), 1).tolist(), strict=True)),
        "trained_on": {bench.name: len(part.relevant) for bench, part in zip(benches, train, strict=True)},
        "dev_mrr@10": figures,
        "recorded": recorded(booster, dev["debian"]),
    }
    arguments.output.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
