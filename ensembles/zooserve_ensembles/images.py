"""Encoded images to what Yahoo's Open NSFW network was trained on."""

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

__all__ = ["FORMATS", "ImageUnreadable", "decoded", "pixels_of"]

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
"""What is decoded: no more of Pillow's decoders than callers need is open to strangers' bytes."""

_SIDE, _CROP = 256, 224
_MEAN_BGR = np.array([104, 117, 123], np.float32)


class ImageUnreadable(ValueError):
    """The bytes are no image that is read here, or one that is too large or damaged."""


def decoded(content: bytes, max_pixels: int) -> Image.Image:
    """The (first) image in `content`, in RGB. Raises ImageUnreadable; its size is looked at before it is decoded."""
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        width, height = image.size
        if width * height > max_pixels:
            raise ImageUnreadable(
                f"it has {width} x {height} pixels; {max_pixels} are read at most: send a smaller one"
            )
        image.load()
        return image.convert("RGB")
    except ImageUnreadable:
        raise
    except Image.DecompressionBombError as exc:  # Pillow looks at the size too, and sooner
        raise ImageUnreadable(f"it has far more than {max_pixels} pixels: send a smaller one") from exc
    except UnidentifiedImageError as exc:
        raise ImageUnreadable(f"it is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image") from exc
    except Exception as exc:  # Pillow's decoders raise whatever a damaged file makes them stumble over
        raise ImageUnreadable(f"it is damaged: {exc}") from exc


def pixels_of(image: Image.Image) -> npt.NDArray[np.float32]:
    """Its centre, 224 x 224 in BGR about the training set's mean.

    The network saw only JPEG files: without the round trip its answers shift by a few percent.
    """
    file = io.BytesIO()
    image.resize((_SIDE, _SIDE), resample=Image.Resampling.BILINEAR).save(file, format="JPEG")
    whole = np.asarray(Image.open(file, formats=("JPEG",)).convert("RGB"), np.float32)
    edge = (_SIDE - _CROP) // 2
    centre = whole[edge : edge + _CROP, edge : edge + _CROP]
    return np.ascontiguousarray(centre[:, :, ::-1] - _MEAN_BGR)
