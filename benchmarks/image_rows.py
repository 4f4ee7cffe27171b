"""Images as rows of a program: what a rank and a data worker do for each, beside a program that decodes in its collate.

`python benchmarks/image_rows.py [--images 600] [--rounds 5]`: makes photos, reads them in both ways in turns, and writes
docs/benchmarks/image_rows.md. All work is done in one process.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from training_cases import write_page

from tuneyard.api import TrainData
from tuneyard.data import prepare_rows

HEIGHT, WIDTH, SHORT_SIDE, CROP = 960, 1280, 256, 224
_TEXT = """\
{images} JPEG files of {height} x {width} pixels, {kb:.0f} KB each. Their short side becomes {side} pixels, and a crop of
{crop} x {crop} is taken of each. `rows with images`: data workers decode and resize, and a rank reads pixels and crops.
`decoded in collate`: stored rows, whose files the rank decodes whole, resizes and crops. Medians of {rounds} rounds in turns, in
processor milliseconds of one process for each image."""


def write_photos(path: Path, count: int) -> None:
    """Smooth photos with some noise: like those of a camera they shrink to about a tenth."""
    draw, files = np.random.default_rng(1), []
    for _ in range(count):
        rough = Image.fromarray(draw.integers(0, 255, (24, 32, 3), dtype=np.uint8)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        noise = draw.integers(-8, 8, (HEIGHT, WIDTH, 1))
        file = io.BytesIO()
        Image.fromarray(np.clip(np.asarray(rough) + noise, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
        files.append(file.getvalue())
    pq.write_table(pa.table({"image": pa.array(files, pa.binary())}), path, row_group_size=50)


def cropped(pixels: Any) -> Any:
    return np.ascontiguousarray(pixels[16 : 16 + CROP, 16 : 16 + CROP])


def decoded_in_collate(file: bytes) -> Any:
    with Image.open(io.BytesIO(file)) as image:
        scale = SHORT_SIDE / min(image.size)
        size = tuple(round(side * scale) for side in image.size)
        return cropped(np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR)))


def timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def round_of(source: Path, cache: Path, images: int) -> dict[str, float]:
    """Processor seconds by column, of all images."""
    given = {"source": str(source), "workers": 0, "images": {"shortSide": SHORT_SIDE}}
    rows = prepare_rows(TrainData.model_validate(given), seed=1, cache_dir=cache).train
    made = timed(lambda: [rows.stream.build(split) for split in rows.stream.splits])
    for number in range(images):  # each shard is open, and its pages are mapped
        rows[number]
    read = timed(lambda: [cropped(rows[number]["image"]) for number in range(images)])
    stored = prepare_rows(TrainData(source=str(source)), seed=1, cache_dir=cache.parent / "stored").train
    whole = timed(lambda: [decoded_in_collate(row["image"]) for row in stored])
    return {"worker": made, "rank": read, "collate": whole}


def table(found: list[dict[str, float]], images: int) -> Iterator[str]:
    yield "| way | data worker, ms | rank, ms | images/s of a rank |"
    yield "|---|---:|---:|---:|"
    worker, rank, collate = (1000 * statistics.median(each[name] for each in found) / images for name in ("worker", "rank", "collate"))
    yield f"| rows with images | {worker:.2f} | {rank:.3f} | {1000 / rank:,.0f} |"
    yield f"| decoded in collate | - | {collate:.2f} | {1000 / collate:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "photos.parquet"
        write_photos(source, given.images)
        found = [round_of(source, Path(folder) / f"round-{number}", given.images) for number in range(given.rounds)]
        kb = source.stat().st_size / given.images / 1000
    facts = {"height": HEIGHT, "width": WIDTH, "side": SHORT_SIDE, "crop": CROP}
    text = _TEXT.format(images=given.images, rounds=given.rounds, kb=kb, **facts)
    write_page("image_rows", "Images as rows of a program", [*text.splitlines(), "", *table(found, given.images)])


if __name__ == "__main__":
    main()
