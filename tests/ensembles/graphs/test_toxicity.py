from pathlib import Path

import h5py
import numpy as np

from zooserve_ensembles.graphs.toxicity import LENGTH, build

WORDS, WIDTH, HIDDEN, DENSE, LABELS = 7, 3, 4, 5, 2


def random_weights(file: Path) -> dict[str, np.ndarray]:
    """A small model of the same layers, saved the way Keras lays them out."""
    rng = np.random.default_rng(0)
    shapes = {"embedding/vars/0": (WORDS, WIDTH)}
    for side in ("forward", "backward"):
        cell = f"bidirectional/{side}_layer/cell/vars"
        shapes |= {f"{cell}/0": (WIDTH, 4 * HIDDEN), f"{cell}/1": (HIDDEN, 4 * HIDDEN), f"{cell}/2": (4 * HIDDEN,)}
    shapes |= {"dense/vars/0": (2 * HIDDEN, DENSE), "dense/vars/1": (DENSE,)}
    shapes |= {"dense_1/vars/0": (DENSE, LABELS), "dense_1/vars/1": (LABELS,)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    with h5py.File(file, "w") as document:
        for name, array in weights.items():
            document[f"layers/{name}"] = array
        document["optimizer/vars/0"] = np.zeros(3)
    return weights


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(steps: np.ndarray, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Keras' LSTM, gates in the order input, forget, cell, output; the state after every step."""
    state = memory = np.zeros(HIDDEN)
    states = []
    for step in steps:
        enter, forget, cell, out = np.split(step @ kernel + state @ recurrent + bias, 4)
        memory = sigmoid(forget) * memory + sigmoid(enter) * np.tanh(cell)
        state = sigmoid(out) * np.tanh(memory)
        states.append(state)
    return np.array(states)


def by_hand(weights: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    steps = weights["embedding/vars/0"][ids]
    cells = {
        side: [weights[f"bidirectional/{side}_layer/cell/vars/{part}"] for part in range(3)]
        for side in ("forward", "backward")
    }
    both = np.hstack([lstm(steps, *cells["forward"]), lstm(steps[::-1], *cells["backward"])])
    dense = np.maximum(both.max(axis=0) @ weights["dense/vars/0"] + weights["dense/vars/1"], 0)
    return sigmoid(dense @ weights["dense_1/vars/0"] + weights["dense_1/vars/1"])


def test_the_graph_computes_what_the_layers_compute(tmp_path: Path, run_graph) -> None:
    weights = random_weights(tmp_path / "model.weights.h5")
    ids = np.random.default_rng(1).integers(0, WORDS, size=(6, LENGTH))
    probabilities = run_graph(build({"model.weights.h5": tmp_path / "model.weights.h5"}), input_ids=ids)[
        "probabilities"
    ]
    np.testing.assert_allclose(probabilities, [by_hand(weights, row) for row in ids], atol=2e-6)


def test_a_text_alone_and_among_others_scores_the_same(tmp_path: Path, run_graph) -> None:
    random_weights(tmp_path / "model.weights.h5")
    model = build({"model.weights.h5": tmp_path / "model.weights.h5"})
    ids = np.random.default_rng(2).integers(0, WORDS, size=(32, LENGTH))
    together = run_graph(model, input_ids=ids)["probabilities"]
    alone = np.vstack([run_graph(model, input_ids=row[None])["probabilities"] for row in ids])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def padded(text: str, vocabulary: dict) -> list[int]:
    table = str.maketrans(dict.fromkeys(vocabulary["filters"], " "))
    known = [vocabulary["words"].get(word) for word in text.lower().translate(table).split()]
    ids = [index for index in known if index is not None][-LENGTH:]
    return [0] * (LENGTH - len(ids)) + ids


def test_the_placed_classifier_equals_keras(placed, golden, run_graph) -> None:
    import json

    vocabulary = json.loads(placed("zoo/classify_tokenizer/1/vocabulary.json").read_text("utf-8"))
    rows = golden("classify")["rows"]
    ids = np.array([padded(row["text"], vocabulary) for row in rows])
    outputs = run_graph(placed("zoo/classify_encoder/1/model.onnx"), input_ids=ids)
    np.testing.assert_allclose(outputs["probabilities"], [row["probabilities"] for row in rows], atol=1e-6)
