"""Files of images, as bytes."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def encoded(height: int, width: int, format: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    """An image of noise, bright on its left half."""
    pixels = np.random.default_rng(height * 1000 + width).integers(0, 60, size=(height, width, 3), dtype=np.uint8)
    pixels[:, : width // 2] += 180
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, format, **options)
    return file.getvalue()


def png_of_size(height: int, width: int) -> bytes:
    """A PNG of some bytes that tells of these many pixels."""
    return _png(height, width, 8, 2, b"\0" * 1000)


def png_of_16_bits(mode: str) -> bytes:
    """A black PNG of 20 x 20 pixels with 16 bits for each channel of RGB or RGBA, which Pillow does not write."""
    return _png(20, 20, 16, 2 if mode == "RGB" else 6, b"\0" * 20 * (1 + 2 * len(mode) * 20))


def _png(height: int, width: int, bits: int, color: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
