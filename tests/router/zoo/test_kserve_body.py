"""Whatever bytes come, looking into a KServe body ends in an estimate or in a refusal."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from zooserve.errors import ServingError
from zooserve_router.kserve_body import checked_body

NAMES = st.sampled_from(["input_ids", "attention_mask", "text"]) | st.text(max_size=3)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
LEAVES = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=8
)
PARAMETERS = st.dictionaries(st.sampled_from(["binary_data_size", "shared_memory_region", "x"]), VALUES, max_size=2)
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES | VALUES,
        "datatype": st.sampled_from(["BYTES", "INT64", "FP32"]) | VALUES,
        "shape": st.lists(NUMBERS | st.integers(0, 3), max_size=3) | VALUES,
        "data": st.lists(st.integers(0, 2) | VALUES, max_size=4) | VALUES,
        "parameters": PARAMETERS | VALUES,
    },
)
HEADERS = st.fixed_dictionaries({"inputs": st.lists(TENSORS, max_size=3) | VALUES}, optional={"outputs": VALUES})
LENGTHS = st.none() | st.text(max_size=4) | st.integers().map(str) | st.integers(1, 6000).map(lambda n: "9" * n)


def look(body, length, vocabulary, longest):
    try:
        assert checked_body(body, length, vocabulary, longest) > 0
    except ServingError as refusal:
        orjson.dumps(refusal.message)


@given(HEADERS, st.binary(max_size=40), st.none() | st.integers(0, 256), st.booleans())
def test_no_inference_breaks_the_look_into_it(vocabulary, header, binary, longest, known):
    front = orjson.dumps(header)
    look(front + binary, str(len(front)), vocabulary if known else None, longest)
    look(front, None, vocabulary if known else None, longest)


@given(st.binary(max_size=60), LENGTHS)
def test_no_bytes_and_no_length_break_it(vocabulary, body, length):
    look(body, length, vocabulary, 256)


@given(st.integers(1, 1500), st.sampled_from(["name", "datatype", "shape", "data", "parameters"]), st.booleans())
def test_no_depth_breaks_it(vocabulary, depth, place, ids):
    nested = b"[" * depth + b"]" * depth
    tensor = {"name": "input_ids", "datatype": "INT64"} if ids else {"name": "text", "datatype": "BYTES"}
    tensor |= {"shape": [1, 1], "data": [], "parameters": {}, place: "HERE"}
    look(orjson.dumps({"inputs": [tensor]}).replace(b'"HERE"', nested), None, vocabulary, 256 if ids else None)
