"""The classifiers of the committed zoo in a real Triton: languages, injections, files and images."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
REPOSITORY = ROOT / "model_repository" / "zoo"


def golden(name: str) -> list[dict[str, Any]]:
    return list(json.loads((ROOT / "ensembles" / "golden" / f"{name}.json").read_text())["rows"])


def labels(model: str) -> list[str]:
    return (REPOSITORY / f"{model}_encoder" / "1" / "labels.txt").read_text().split()


def probabilities(zoo: Any, model: str, tensor: str, contents: Sequence[bytes]) -> npt.NDArray[Any]:
    rows = np.array([[content] for content in contents], object)
    return zoo.infer(model, {tensor: rows}, ["probabilities"])["probabilities"]


def picture(form: str, size: tuple[int, int] = (32, 32)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (90, 160, 90)).save(file, format=form)
    return file.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A few bytes of PNG whose header promises that many pixels."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(bytes(100))]
    framed = [struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each)) for each in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def test_languages_are_the_reference_implementation_s(zoo: Any) -> None:
    rows = golden("language")
    found = zoo.ask("language", [row["text"] for row in rows], ["probabilities"])["probabilities"]
    assert [labels("language")[place] for place in found.argmax(axis=1)] == [row["language"] for row in rows]
    np.testing.assert_allclose(found.max(axis=1), [row["language_probability"] for row in rows], atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


def test_texts_of_any_length_have_the_language_that_they_have_alone(zoo: Any) -> None:
    texts = [row["text"] for row in golden("language")] + ["", "日本語" * 2000]
    outputs = ["probabilities", "tokens"]
    alone = zoo.at_once([lambda text=text: zoo.ask("language", [text], outputs) for text in texts])
    together = zoo.ask("language", texts, outputs)
    np.testing.assert_allclose(
        np.concatenate([one["probabilities"] for one in alone]), together["probabilities"], atol=1e-5
    )
    assert together["tokens"].max() == 1023  # 341 characters of three bytes: half of one is none


def test_rag_query_tells_the_language_beside_the_vector(zoo: Any) -> None:
    rows = golden("rag_query")
    outputs = ["embedding", "injection_probability", "language", "language_probability", "tokens"]
    found = zoo.ask("rag_query", [row["text"] for row in rows], outputs)
    assert [code.decode() for code in found["language"][:, 0]] == [row["language"] for row in rows]
    np.testing.assert_allclose(
        found["language_probability"][:, 0], [row["language_probability"] for row in rows], atol=1e-4
    )


def test_injections_are_the_reference_implementation_s(zoo: Any) -> None:
    rows = golden("injection")
    found = zoo.ask("injection", [row["text"] for row in rows], ["probabilities", "tokens"])
    np.testing.assert_allclose(found["probabilities"][:, 0], [row["injection_probability"] for row in rows], atol=1e-3)
    assert found["tokens"].shape == (len(rows), 1)


def test_file_types_are_the_reference_implementation_s_alone_and_together(zoo: Any) -> None:
    rows = golden("file_type")
    contents = [base64.b64decode(row["file"]) for row in rows]
    alone = [probabilities(zoo, "file_type", "file", [content]) for content in contents]
    for found in (probabilities(zoo, "file_type", "file", contents), np.concatenate(alone)):
        assert [labels("file_type")[place] for place in found.argmax(axis=1)] == [row["label"] for row in rows]
        np.testing.assert_allclose(found.max(axis=1), [row["probability"] for row in rows], atol=1e-3)


def test_images_are_scored_as_the_reference_implementation_does(zoo: Any) -> None:
    rows = golden("nsfw")
    found = probabilities(zoo, "nsfw", "image", [base64.b64decode(row["image"]) for row in rows])
    np.testing.assert_allclose(found[:, 1], [row["nsfw"] for row in rows], atol=1e-4)


BAD_IMAGES = {
    "no image": (b"GET / HTTP/1.1\r\n", "it is no PNG, JPEG, GIF or WEBP image"),
    "empty": (b"", "it is no PNG"),
    "a format that is not read": (picture("TIFF"), "it is no PNG"),
    "cut off": (picture("PNG", (300, 300))[:200], "it is damaged"),
    "a cut-off JPEG": (picture("JPEG", (300, 300))[:400], "it is damaged"),
    "too large": (png_that_claims(6_000, 6_000), "it has 6000 x 6000 pixels; 25000000 are read at most"),
    "a bomb": (png_that_claims(60_000, 60_000), "it has far more than 25000000 pixels"),
    "less than it promises": (png_that_claims(100, 100), "it is damaged"),
}


@pytest.mark.parametrize("fault", BAD_IMAGES)
def test_a_bad_image_is_refused_by_name_and_its_neighbours_are_answered(zoo: Any, fault: str) -> None:
    content, said = BAD_IMAGES[fault]
    good = picture("PNG")
    calls = [
        lambda content=content: probabilities(zoo, "nsfw", "image", [content]) for content in (good, content, good)
    ]
    first, refused, last = zoo.at_once(calls)
    assert isinstance(refused, InferenceServerException), refused
    assert refused.status() == "400"
    assert "nsfw_reader version 1: image 0: " in refused.message()
    assert said in refused.message()
    np.testing.assert_allclose(first, last)


def test_the_row_at_fault_is_told(zoo: Any) -> None:
    with pytest.raises(InferenceServerException, match="image 1: it is no PNG"):
        probabilities(zoo, "nsfw", "image", [picture("PNG"), b"text"])
    with pytest.raises(InferenceServerException, match="file 1: it has 0 bytes besides blanks; 8 are needed"):
        probabilities(zoo, "file_type", "file", [b"#!/bin/sh\necho\n", b" " * 9000 + b" abc"])


def test_labels_are_as_many_as_probabilities(zoo: Any) -> None:
    for model, tensor in (("language", "text"), ("file_type", "file")):
        assert probabilities(zoo, model, tensor, [b"some text or file"]).shape == (1, len(labels(model)))
        assert len(set(labels(model))) == len(labels(model))
