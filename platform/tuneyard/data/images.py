"""Images of rows, decoded and resized: PNG or JPEG -> pixels whose short side has the size that the task names."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pyarrow as pa

FORMATS = ("PNG", "JPEG")
MOST_PIXELS = 1 << 26
"""Pixels of an image, as it is and resized: 192 MiB in memory. A file of some KB may tell of many more."""
PIXELS = pa.struct([("height", pa.int32()), ("width", pa.int32()), ("pixels", pa.binary())])
"""A decoded image: height x width x 3 bytes, row by row, red, green, blue."""
_MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})
_VERSION = 1


class BadImage(ValueError):
    """An image that cannot be used, with the reason for people."""


@dataclass(frozen=True)
class ImageColumn:
    """The column with images, and the pixels of their short side."""

    name: str
    short_side: int

    @property
    def identity(self) -> list[Any]:
        """All that pixels depend on, besides the images."""
        return [_VERSION, self.name, self.short_side, version("pillow")]

    def decoded(self, value: Any) -> dict[str, Any]:
        """A value of PIXELS. The image is turned as its EXIF data say, loses transparency, and keeps its proportions. A smaller one is
        enlarged.

        `value`: bytes of a file, or a dict with them under `bytes`, as Hugging Face data sets have it. Raises BadImage.
        """
        from PIL import Image, ImageOps, UnidentifiedImageError

        content = value.get("bytes") if isinstance(value, Mapping) else value
        if not isinstance(content, bytes):
            raise BadImage(f"column {self.name} has no bytes of an image but {type(content).__name__}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's words on sizes: there is an own limit
            try:
                with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
                    small = self._resized(opened, ImageOps.exif_transpose)
            except (BadImage, MemoryError):  # too little memory says nothing of the image
                raise
            except Image.DecompressionBombError:
                raise BadImage(f"the image has far more than the {MOST_PIXELS:,} pixels that are decoded at most") from None
            except UnidentifiedImageError:
                raise BadImage(f"column {self.name} has bytes that are no {' or '.join(FORMATS)} file") from None
            except Exception as error:  # Pillow raises many kinds for damaged files
                raise BadImage(f"the image is damaged: {str(error) or type(error).__name__}") from error
        return {"height": small.height, "width": small.width, "pixels": small.tobytes()}

    def _resized(self, image: Any, turned: Any) -> Any:
        from PIL.Image import Resampling

        if image.mode not in _MODES or _has_16_bits(image):
            raise BadImage(f"the image has pixels of mode {_stored_mode(image)}, and not of 8 bits a channel")
        scale = self.short_side / min(image.size)
        wanted = tuple(max(self.short_side, round(side * scale)) for side in image.size)
        for width, height in (image.size, wanted):
            if width * height > MOST_PIXELS:
                told = "" if (width, height) == image.size else " after resizing"
                raise BadImage(f"the image has {width:,} x {height:,} pixels{told}; at most {MOST_PIXELS:,} are decoded")
        if image.format == "JPEG":
            image.draft(None, tuple(2 * side for side in wanted))  # a JPEG is decoded at a part of its size, twice the wanted one or more
        return turned(image.convert("RGB").resize(wanted, Resampling.BILINEAR))


def _stored_mode(image: Any) -> str:
    """The mode of pixels in the file. Pillow reads 16 bits of a color as 8, under the mode of 8."""
    stored = image.tile[0][3] if image.tile else None
    return stored if isinstance(stored, str) else str(image.mode)


def _has_16_bits(image: Any) -> bool:
    return ";16" in _stored_mode(image)
