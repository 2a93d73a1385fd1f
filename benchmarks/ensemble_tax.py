"""What does the ensemble cost? The same encoder with token ids, behind its tokenizer, and fused with it in two ways.

    python benchmarks/ensemble_tax.py [--short]

All in one Triton, called directly, request by request in turn and then round by round:

- `token ids`: the encoder alone, ids padded by the caller;
- `ensemble`: tokenizer stage and encoder, as committed;
- `ensemble, whole runs`: the same without the encoder's trimming and side-by-side slices, to compare with the next;
- `one stub`: a Python model that tokenizes and runs the same file in the same process (`fused/model.py`);
- `one graph`: tokenizer and encoder in one ONNX file, by the BertTokenizer operator of onnxruntime-extensions
  (`pip install 'zooserve[bench]'`; left out without it). The operator takes one text at a time: no batches.

The operator's ids are compared with the tokenizer's on the golden texts first.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from load import Call, direct, direct_embed, one_by_one, percentile, run_load, texts_of_words
from onnx import TensorProto, helper
from own_triton import ZOO, Config, Copy, OwnTriton, own_triton, parameter, renamed_steps

from zooserve.triton.tensors import text_tensor, token_tensor
from zooserve_ensembles.buckets import BUCKETS, padded

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "ensembles/golden/embed.json"
ENCODER = ZOO / "embed_encoder/1/model.onnx"
TOKENIZER = ZOO / "embed_tokenizer/1/tokenizer.json"
CONCURRENCY = 32
ODD = (
    "Ünïcödé café",
    "日本語 テスト",
    "emoji 😀 end",
    "tabs\tand\nnewlines",
    "[CLS] odd [SEP]",
    "İstanbul",
    "ẞ",
    "a\u0301",
)
FUSED = """
name: "{name}" backend: "{backend}" max_batch_size: {rows}
input [ {{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }} ]
output [ {{ name: "embedding" data_type: TYPE_FP32 dims: [ {dims} ] }} {more} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
{rest}
"""


@dataclass
class Way:
    """One way from a text to its vector, and what it took."""

    calls: Sequence[Call]
    rates: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    answered: int = 0
    failed: int = 0


def tokenizer() -> Any:
    """The zoo's, set up as its stage does."""
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(TOKENIZER))
    loaded.no_padding()
    loaded.enable_truncation(BUCKETS[-1])
    return loaded


def one_stub(folder: Path) -> Path:
    """The fused Python model's folder, below `folder`."""
    version = folder / "one_stub/1"
    version.mkdir(parents=True)
    for file in (HERE / "fused/model.py", ENCODER, TOKENIZER):
        (version / file.name).symlink_to(file)
    tokens = ', { name: "tokens" data_type: TYPE_INT32 dims: [ 1 ] }'
    config = FUSED.format(name="one_stub", backend="python", rows=64, dims=384, more=tokens, rest="dynamic_batching {}")
    (version.parent / "config.pbtxt").write_text(config)
    return version.parent


def one_graph(folder: Path) -> Path:
    """The fused ONNX model's folder: the operator's ids of one text go into the encoder's graph."""
    from onnxruntime_extensions import get_library_path

    version = folder / "one_graph/1"
    version.mkdir(parents=True)
    onnx.save(fused_graph(), version / "model.onnx")
    rest = f'model_operations {{ op_library_filename: "{get_library_path()}" }}'
    config = FUSED.format(name="one_graph", backend="onnxruntime", rows=0, dims="1, 384", more="", rest=rest)
    (version.parent / "config.pbtxt").write_text(config)
    return version.parent


def fused_graph() -> onnx.ModelProto:
    """BertTokenizer in front of the encoder, which then reads a batch of one."""
    model = onnx.load(ENCODER)
    graph = model.graph
    axis = helper.make_tensor("first_axis", TensorProto.INT64, [1], [0])
    names = ("input_ids", "attention_mask")
    nodes = [
        _tokenizer_node(("flat_input_ids", "token_types", "flat_attention_mask")),
        *(helper.make_node("Unsqueeze", [f"flat_{name}", "first_axis"], [name]) for name in names),
    ]
    vector = next(output for output in graph.output if output.name == "sentence_embedding")
    made = helper.make_graph(
        [*nodes, *graph.node, helper.make_node("Identity", [vector.name], ["embedding"])],
        "text_to_vector",
        [helper.make_tensor_value_info("text", TensorProto.STRING, [1])],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [None, 384])],
        [*graph.initializer, axis],
    )
    opsets = [*model.opset_import, helper.make_opsetid("ai.onnx.contrib", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=model.ir_version)


def _tokenizer_node(outputs: Sequence[str]) -> onnx.NodeProto:
    vocabulary = tokenizer().get_vocab()
    return helper.make_node(
        "BertTokenizer",
        ["text"],
        list(outputs),
        domain="ai.onnx.contrib",
        vocab_file="".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.__getitem__)),
        do_lower_case=1,
        strip_accents=1,
        suffix_indicator="##",
        max_length=BUCKETS[-1],
        truncation_strategy_name="longest_first",
    )


def tell_differing_texts() -> None:
    """For how many of the golden and odd texts the operator and the tokenizer give different ids."""
    import onnxruntime as ort
    from onnxruntime_extensions import get_library_path

    names = ("input_ids", "token_type_ids", "attention_mask")
    graph = helper.make_graph(
        [_tokenizer_node(names)],
        "ids",
        [helper.make_tensor_value_info("text", TensorProto.STRING, [None])],
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
    options = ort.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    texts = [*ODD, *(row["text"] for row in json.loads(GOLDEN.read_text())["rows"])]
    differing = sum(
        session.run(None, {"text": np.array([text], object)})[0].ravel().tolist() != wanted.ids
        for text, wanted in zip(texts, tokenizer().encode_batch(texts), strict=True)
    )
    print(f"BertTokenizer gives other ids than the tokenizer for {differing} of {len(texts)} texts.")


def whole_runs(config: Config) -> None:
    """Buckets run whole, and slices one after the other."""
    for name in ("mask_input", "side_by_side"):
        parameter(config, name, None)


def ways(zoo: str, texts: Sequence[str], *, graph: bool) -> dict[str, Way]:
    """Every way, its calls prebuilt."""
    ids = [padded([encoded.ids])[:2] for encoded in tokenizer().encode_batch_fast(list(texts))]
    tensors = [(token_tensor("input_ids", row), token_tensor("attention_mask", mask)) for row, mask in ids]
    made = {
        "token ids": Way([direct(zoo, "embed_encoder", pair, ("sentence_embedding",)) for pair in tensors]),
        "ensemble": Way([direct_embed(zoo, text) for text in texts]),
        "ensemble, whole runs": Way([direct_embed(zoo, text, model="embed_whole") for text in texts]),
        "one stub": Way([direct_embed(zoo, text, model="one_stub") for text in texts]),
    }
    if graph:
        single = [text_tensor("text", [text]) for text in texts]
        made["one graph"] = Way(
            [
                direct(zoo, "one_graph", (type(one)(one.name, one.datatype, (1,), one.data),), ("embedding",))
                for one in single
            ]
        )
    return made


def measure(triton: OwnTriton, found: dict[str, Way], given: argparse.Namespace) -> str:
    """One by one, then under load, as a Markdown table."""
    paths = {name: lambda index, way=way: way.calls[index % len(way.calls)] for name, way in found.items()}
    asyncio.run(one_by_one(paths, 20))
    alone = asyncio.run(one_by_one(paths, given.count))
    for _ in range(given.rounds):
        for way in found.values():
            before = triton.cpu_s()
            loaded = asyncio.run(run_load(way.calls, CONCURRENCY, given.seconds))
            way.cpu_s += triton.cpu_s() - before
            way.rates.append(loaded.per_second)
            way.answered += len(loaded.latencies_s)
            way.failed += loaded.failed
    lines = [
        f"| way | p50 at 1, ms | p95 at 1, ms | requests/s at {CONCURRENCY} | CPU ms per request | failed |",
        "|---|---|---|---|---|---|",
    ]
    for name, way in found.items():
        lines.append(
            f"| {name} | {percentile(alone[name], 0.5) * 1000:.2f} | {percentile(alone[name], 0.95) * 1000:.2f} "
            f"| {np.median(way.rates):.1f} | {1000 * way.cpu_s / max(1, way.answered):.2f} | {way.failed} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="requests of each way, one by one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    if given.short:
        given.count, given.rounds, given.seconds = 40, 1, 2.0
    graph = find_spec("onnxruntime_extensions") is not None
    if graph:
        tell_differing_texts()
    else:
        print("onnxruntime-extensions is not installed: `one graph` is left out (pip install 'zooserve[bench]').")
    with tempfile.TemporaryDirectory(prefix="zooserve-bench-") as scratch:
        folder = Path(scratch)
        copies = [
            Copy("embed_tokenizer"),
            Copy("embed_encoder"),
            Copy("embed"),
            Copy("embed_encoder", "encoder_whole", whole_runs),
            Copy("embed", "embed_whole", renamed_steps({"embed_encoder": "encoder_whole"})),
            Copy(str(one_stub(folder)), "one_stub"),
        ]
        if graph:
            copies.append(Copy(str(one_graph(folder)), "one_graph"))
        with own_triton(copies) as triton:
            found = ways(triton.http, texts_of_words(20, 256), graph=graph)
            print(measure(triton, found, given))


if __name__ == "__main__":
    main()
