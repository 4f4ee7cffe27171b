"""Images of rows: decoded, turned and resized; what cannot be used is refused with its reason."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.builders.images import encoded, png_of_16_bits, png_of_size

from tuneyard.data.images import BadImage, ImageColumn

COLUMN = ImageColumn("photo", 16)
_FILE = io.BytesIO()
Image.fromarray(np.zeros((20, 20), np.uint16)).save(_FILE, "PNG")
SIXTEEN_BITS = _FILE.getvalue()


def pixels(value: Any, column: ImageColumn = COLUMN) -> Any:
    made = column.decoded(value)
    return np.frombuffer(made["pixels"], np.uint8).reshape(made["height"], made["width"], 3)


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
@pytest.mark.parametrize(("size", "made"), [((20, 40), (16, 32)), ((40, 20), (32, 16)), ((4, 4), (16, 16)), ((7, 700), (16, 1600))])
def test_the_short_side_has_the_size_and_proportions_stay(format: str, size: tuple[int, int], made: tuple[int, int]) -> None:
    found = pixels(encoded(*size, format))
    assert found.shape[:2] == made
    assert found[:, : made[1] // 4].mean() > 150 > 100 > found[:, -made[1] // 4 :].mean()


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "LA", "1"])
def test_other_modes_become_colors(mode: str) -> None:
    assert pixels(encoded(20, 20, mode=mode)).shape == (16, 16, 3)


def test_an_image_is_turned_as_its_camera_says() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    for format in ("JPEG", "PNG"):
        found = pixels(encoded(20, 40, format, exif=turned))
        assert found.shape == (32, 16, 3)
        assert found[:8].mean() > 150 > 100 > found[-8:].mean()


def test_a_large_jpeg_decoded_at_a_part_of_its_size_is_the_whole_one_made_small() -> None:
    photo = encoded(1200, 1600, "JPEG")
    whole = Image.open(io.BytesIO(photo)).resize((21, 16), Image.Resampling.BILINEAR)
    assert np.abs(pixels(photo).astype(int) - np.asarray(whole)).mean() < 3


def test_a_dict_with_bytes_is_an_image_as_hugging_face_has_it() -> None:
    assert pixels({"bytes": encoded(20, 20), "path": None}).shape == (16, 16, 3)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "column photo has no bytes of an image but NoneType"),
        ({"bytes": None, "path": "a.png"}, "has no bytes of an image but NoneType"),
        ("iVBORw0KGgo=", "has no bytes of an image but str"),
        (b"GIF89a", "bytes that are no PNG or JPEG file"),
        (b"", "bytes that are no PNG or JPEG file"),
        (encoded(20, 20, "GIF"), "bytes that are no PNG or JPEG file"),
        (encoded(20, 20)[:300], "the image is damaged"),
        (encoded(20, 20, "JPEG")[:300], "the image is damaged"),
        (SIXTEEN_BITS, "pixels of mode I;16"),
        (png_of_16_bits("RGB"), "pixels of mode RGB;16B, and not of 8 bits"),
        (png_of_16_bits("RGBA"), "pixels of mode RGBA;16B, and not of 8 bits"),
        (png_of_size(9_000, 9_000), "has 9,000 x 9,000 pixels; at most"),
        (png_of_size(30_000, 30_000), "has far more than the"),
        (png_of_size(1, 600_000), "has 9,600,000 x 16 pixels after resizing"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(value: Any, said: str) -> None:
    with pytest.raises(BadImage, match=said):
        COLUMN.decoded(value)


def test_too_little_memory_is_no_fault_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row would be missing from a shard that other jobs share."""

    def full(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "resize", full)
    with pytest.raises(MemoryError):
        COLUMN.decoded(encoded(20, 20))
