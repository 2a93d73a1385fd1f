"""Encoded images to pixels, and what is refused before or while it is decoded."""

import io
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from zooserve_ensembles.images import FORMATS, ImageUnreadable, decoded, pixels_of

MANY = 1_000_000


def encoded(form: str, mode: str = "RGB", size: tuple[int, int] = (40, 30), **options: object) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert(mode).save(file, format=form, **options)
    return file.getvalue()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_becomes_rgb(form: str) -> None:
    image = decoded(encoded(form), MANY)
    assert (image.mode, image.size) == ("RGB", (40, 30))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
def test_every_kind_of_png_becomes_rgb(mode: str) -> None:
    assert decoded(encoded("PNG", mode), MANY).mode == "RGB"


def test_pixels_are_the_centre_in_bgr_about_the_mean_of_the_training_set() -> None:
    red = Image.new("RGB", (300, 200), (255, 0, 0))
    pixels = pixels_of(red)
    assert (pixels.shape, pixels.dtype) == ((224, 224, 3), np.float32)
    np.testing.assert_allclose(pixels.mean(axis=(0, 1)), [-104, -117, 255 - 123], atol=2)


@pytest.mark.parametrize("form", ["TIFF", "BMP", "PPM", "ICO"])
def test_other_decoders_of_pillow_are_not_open_to_callers(form: str) -> None:
    with pytest.raises(ImageUnreadable, match="it is no PNG, JPEG, GIF or WEBP image"):
        decoded(encoded(form), MANY)


def test_the_size_is_looked_at_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", lambda self: pytest.fail("it was decoded"))
    with pytest.raises(ImageUnreadable, match="it has 40 x 30 pixels; 1199 are read at most"):
        decoded(encoded("PNG"), 1199)


@pytest.mark.parametrize("form", FORMATS)
def test_no_damage_raises_anything_else(form: str) -> None:
    """Each byte of a file changed, and the file cut there: an image or a refusal comes of it."""
    whole = encoded(form, size=(12, 9))
    for place in range(len(whole)):
        changed = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        for content in (changed, whole[:place]):
            with suppress(ImageUnreadable):
                decoded(content, MANY)
