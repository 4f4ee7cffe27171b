"""Small data sets for the programs beside: `python made_data.py clicks FOLDER` writes FOLDER/clicks.parquet, the same in every run."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def clicks(count: int = 20000) -> pa.Table:
    """Adverts shown: whether one is clicked depends on tastes of its user, on its item, and on its price."""
    draw = np.random.default_rng(1)
    tastes, kinds = draw.normal(size=(100, 2)), draw.normal(size=(50, 2))
    user, item, hour = draw.integers(100, size=count), draw.integers(50, size=count), draw.integers(24, size=count)
    price = draw.uniform(size=count).astype(np.float32)
    logit = 1.5 * (tastes[user] * kinds[item]).sum(1) - 2.0 * price + 0.5 * np.sin(hour / 24 * 2 * np.pi)
    clicked = draw.uniform(size=count) < 1 / (1 + np.exp(-logit))
    return pa.table({"user": user, "item": item, "hour": hour, "price": price, "clicked": clicked.astype(np.int8)})


def captions(count: int = 1200) -> pa.Table:
    """Images of 16 x 16 pixels with one shape, and what can be said of it: `a large red disc above left of the middle`."""
    draw = np.random.default_rng(2)
    colours = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 70, 230)}
    rows, columns = np.mgrid[0:16, 0:16]
    images, texts = [], []
    for _ in range(count):
        size, shape, colour = draw.choice(["small", "large"]), draw.choice(["square", "disc"]), draw.choice(list(colours))
        y, x, radius = int(draw.choice([4, 8, 11])), int(draw.choice([4, 8, 11])), {"small": 2, "large": 4}[str(size)]
        far = np.maximum(abs(rows - y), abs(columns - x)) if shape == "square" else np.hypot(rows - y, columns - x)
        image = draw.integers(0, 30, size=(16, 16, 3)).astype(np.uint8)
        image[far <= radius] = colours[str(colour)]
        places = {4: ("above", "left"), 8: ("", ""), 11: ("below", "right")}
        where = " ".join(filter(None, [places[y][0], places[x][1]]))
        texts.append(f"a {size} {colour} {shape}" + (f" {where} of the middle" if where else ""))
        images.append(image.tobytes())
    return pa.table({"image": pa.array(images, pa.binary()), "caption": texts})


def sines(count: int = 2000) -> pa.Table:
    """Tasks: amplitude and phase of a sine."""
    draw = np.random.default_rng(3)
    return pa.table(
        {"amplitude": draw.uniform(0.5, 3.0, count).astype(np.float32), "phase": draw.uniform(0, np.pi, count).astype(np.float32)}
    )


def denoising(count: int = 2000) -> pa.Table:
    """Images of 8 x 8 grey pixels: a bar across a dark ground."""
    draw = np.random.default_rng(4)
    images = np.full((count, 8, 8), 25, np.uint8)
    for image, place, upright in zip(images, draw.integers(7, size=count), draw.integers(2, size=count), strict=True):
        if upright:
            image[:, place : place + 2] = 230
        else:
            image[place : place + 2, :] = 230
    return pa.table({"image": pa.array([image.tobytes() for image in images], pa.binary())})


def ranker(count: int = 100000) -> pa.Table:
    """A log of clicks with effects of single features, pairs, triples and the order of what was seen."""
    from tuneyard.ranking import generated_clicks

    return pa.Table.from_batches(generated_clicks(count, seed=1))


def walks(count: int = 2000) -> pa.Table:
    """Start and goal on a field of 5 x 5, each as row and column."""
    return pa.table({"places": np.random.default_rng(5).integers(5, size=(count, 2, 2)).tolist()})


def federated(count: int = 200) -> pa.Table:
    """Clients with 5 to 30 points each, near the places that they know; three kinds lie in a wheel around the middle."""
    draw = np.random.default_rng(6)
    sizes, homes = draw.integers(5, 31, size=count), draw.normal(size=(count, 2))
    points = [(home + draw.normal(size=(size, 2))).astype(np.float32) for home, size in zip(homes, sizes, strict=True)]
    kinds = [((np.arctan2(each[:, 1], each[:, 0]) + np.pi) // (2 * np.pi / 3 + 1e-6)).astype(int) for each in points]
    return pa.table({"points": [each.tolist() for each in points], "kinds": [each.tolist() for each in kinds]})


TEAMS = ["bears", "lions", "wolves", "hawks", "foxes", "owls"]
PLACES = ["oslo", "rome", "cairo", "lima", "delhi"]
SMALL_TALK = ["it rained all day", "many people came", "the grass was wet", "songs were heard until late", "the sun was low"]
OF_REPORTS = ["the", "met", "in", ".", "scored", "0", "1", "2", "3", "4"]
OF_SUMMARIES = ["beat", "drew", "with"]
REPORT_WORDS = sorted({*TEAMS, *PLACES, *" ".join(SMALL_TALK).split(), *OF_REPORTS, *OF_SUMMARIES})


def summaries(count: int = 4000) -> pa.Table:
    """Reports of matches, and what a headline says of each: `lions beat bears in oslo`."""
    draw = np.random.default_rng(7)
    made: dict[str, list[str]] = {"report": [], "summary": []}
    for _ in range(count):
        (one, other), place = draw.choice(TEAMS, size=2, replace=False), draw.choice(PLACES)
        goals = draw.integers(5, size=2)
        talk = list(draw.choice(SMALL_TALK, size=2, replace=False))
        lines = [f"the {one} scored {goals[0]}", f"the {other} scored {goals[1]}", *talk]
        draw.shuffle(lines)
        made["report"].append(" . ".join([f"the {one} met the {other} in {place}", *lines]) + " .")
        winner, loser = (one, other) if goals[0] >= goals[1] else (other, one)
        what = "drew with" if goals[0] == goals[1] else "beat"
        made["summary"].append(f"{winner} {what} {loser} in {place}")
    return pa.table(made)


def photos(count: int = 600) -> pa.Table:
    """Photos of many sizes, as PNG and as JPEG: a dark square, disc or cross on a bright ground."""
    from PIL import Image

    draw = np.random.default_rng(8)
    kinds, files = draw.choice(["square", "disc", "cross"], size=count), []
    for number, kind in enumerate(kinds):
        high, wide = draw.integers(32, 64, size=2)
        down, right = np.abs(np.mgrid[0:high, 0:wide] - np.array([high, wide])[:, None, None] / 2) / (min(high, wide) / 3)
        far = {"square": np.maximum(down, right), "disc": np.hypot(down, right), "cross": 2.5 * np.minimum(down, right)}[str(kind)]
        photo = draw.integers(180, 250, size=(high, wide, 3)).astype(np.uint8)
        photo[(far <= 1) & (np.maximum(down, right) <= 1)] = draw.integers(0, 100, size=3)
        file = io.BytesIO()
        Image.fromarray(photo).save(file, "PNG" if number % 2 else "JPEG")
        files.append(file.getvalue())
    return pa.table({"image": pa.array(files, pa.binary()), "kind": kinds.tolist()})


MADE = {
    "clicks": clicks, "captions": captions, "sines": sines, "denoising": denoising, "ranker": ranker,
    "walks": walks, "federated": federated, "summaries": summaries, "photos": photos,
}  # fmt: skip

if __name__ == "__main__":
    name, folder = sys.argv[1:]
    pq.write_table(MADE[name](), Path(folder) / f"{name}.parquet")
