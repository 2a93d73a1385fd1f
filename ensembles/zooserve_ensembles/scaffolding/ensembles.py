"""A new ensemble of two stages: preprocessing in Python, then an ONNX model."""

import zlib

import numpy as np

from zooserve_ensembles.families.transformer import MAX_WAITING, TEXT
from zooserve_ensembles.folders import Files, ensemble_folder, member_folder
from zooserve_ensembles.graphs.writing import floats
from zooserve_ensembles.member import Member, Warmup, text_of, zeros
from zooserve_ensembles.pipeline import Dtype, Pipeline, Step, Tensor, edges
from zooserve_ensembles.scaffolding.models import TEXTS, linear_graph
from zooserve_ensembles.scaffolding.parts import HEADER, card, golden, template

__all__ = ["ensemble_files", "ensemble_names"]

SIZE = 16
FEATURES, SCORE = Tensor("features", Dtype.FP32, (SIZE,)), Tensor("score", Dtype.FP32, (1,))
WEIGHT = np.linspace(-1, 1, SIZE, dtype=np.float32)[:, None]
BIAS = np.array([0.25], np.float32)


def ensemble_names(name: str) -> tuple[str, str, str]:
    """The folders that it needs: the ensemble, and its two stages."""
    return name, f"{name}_features", f"{name}_head"


def ensemble_files(name: str) -> Files:
    """Every file of a new ensemble."""
    _, first, last = ensemble_names(name)
    features, head = _stages(name)
    rows = [
        ({"text": {"datatype": "BYTES", "data": [[text]]}}, {"score": [[_score(text)]]})
        for text in (*TEXTS, "a b a b c")
    ]
    return {
        **ensemble_folder(_pipeline(name, features, head), HEADER),
        **member_folder(features, HEADER, {"model.py": template("features.py.txt", name=first, size=str(SIZE))}),
        **member_folder(head, HEADER, {"model.onnx": _graph(last)}),
        **golden(name, "zooserve new, in numpy", 1e-5, rows),
        **card(
            name,
            "text to a score",
            "`text` BYTES [n, 1] to `score` FP32 [n, 1]",
            stages=f"`{first}` -> `{last}`",
        ),
    }


def _stages(name: str) -> tuple[Member, Member]:
    _, first, last = ensemble_names(name)
    features = Member(
        name=first,
        summary=f"First stage of {name}: text to {SIZE} numbers. Edit 1/model.py.",
        backend="python",
        inputs=(TEXT,),
        outputs=(FEATURES,),
        max_queue_size=MAX_WAITING,
        warmups=(Warmup("sentence", (text_of(8),)),),
        reasons={
            "dynamic_batching": "The queue is bounded here, at an ensemble's first step, and nowhere behind it: behind "
            "a fan-out a full queue wedges Triton 2.51 for good."
        },
    )
    head = Member(
        name=last,
        summary=f"Second stage of {name}: {SIZE} numbers to a score. Replace 1/model.onnx.",
        backend="onnxruntime",
        inputs=(FEATURES,),
        outputs=(SCORE,),
        warmups=(Warmup("zeros", (zeros(FEATURES, 1),)),),
    )
    return features, head


def _pipeline(name: str, features: Member, head: Member) -> Pipeline:
    return Pipeline(
        name=name,
        summary="Text to a score between 0 and 1.",
        inputs=(TEXT,),
        outputs=(SCORE,),
        steps=(
            Step(features, takes=edges("text"), gives=edges("features")),
            Step(head, takes=edges("features"), gives=edges("score")),
        ),
    )


def _graph(name: str) -> bytes:
    graph = linear_graph(name, "features", "sum", WEIGHT, BIAS)
    graph.node("Sigmoid", ["sum"], "score")
    return graph.serialized(floats({"features": ["batch", SIZE]}), floats({"score": ["batch", 1]}))


def _score(text: str) -> float:
    """The same by another way, for the golden answers."""
    total = sum(float(WEIGHT[zlib.crc32(word.encode()) % SIZE, 0]) for word in text.lower().split())
    return float(1 / (1 + np.exp(-(total + float(BIAS[0])))))
