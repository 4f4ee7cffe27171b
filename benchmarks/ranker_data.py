"""What ranker_ensembles.py trains on: the generated log of clicks, and MovieLens-100k, as batches of tensors."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from benchmarks.peer_packages import add_packages

from tuneyard.ranking import Effects, RankerConfig, RankMetrics, SparseFeature, batch_of, generated_clicks
from tuneyard.ranking.click_log import config_of

Batch = dict[str, torch.Tensor]
WIDTH, ROWS_OF_BATCH = 16, 256
TRAIN_ROWS, HELD_OUT_ROWS = 400_000, 40_000
LOG_SEED, EFFECTS = 1, Effects(noise=0.0)
_PART = 20_000
_EVALUATED = 4_000
_MOVIELENS = "recbole==1.2.1"
_LIKED = 4.0
_HISTORY = 12
_TRAIN, _VALID = 0.7, 0.8


@dataclass(frozen=True)
class Data:
    """Batches of three parts. `config`: features and label, without layers; `epochs`: passes over `train`; `table_rate`: learning
    rate of the feature layer of all models; `floor`: normalised entropy of the true probabilities on `test`, where they are known."""

    config: RankerConfig
    train: list[Batch]
    valid: list[Batch]
    test: list[Batch]
    epochs: int
    table_rate: float
    floor: float | None = None


def clicks() -> Data:
    """400,000 rows of the generated log, read once, and 40,000 each to choose by and to test on; no effect that no model can know."""
    config = config_of(layers=(), width=WIDTH)
    train = _batches(_log(TRAIN_ROWS, 0), config, ROWS_OF_BATCH)
    valid = _batches(_log(HELD_OUT_ROWS, TRAIN_ROWS), config, _EVALUATED)
    tested = _log(HELD_OUT_ROWS, TRAIN_ROWS + HELD_OUT_ROWS)
    metrics = RankMetrics()
    probability = tested["probability"].to_numpy()
    metrics.update(np.log(probability / (1 - probability)), tested["clicked"].to_numpy().astype(np.float64))
    return Data(config, train, valid, _batches(tested, config, _EVALUATED), 1, 0.03, metrics.figures().normalised_entropy)


def _log(rows: int, first_row: int) -> pa.Table:
    return pa.Table.from_batches(generated_clicks(rows, LOG_SEED, effects=EFFECTS, batch=_PART, first_row=first_row))


def movielens() -> Data:
    """MovieLens-100k (Harper and Konstan 2015) as RecBole's package ships it. Label: a rating of 4 or 5. Of each user's ratings, in order
    of time, the first 70 % train, the next 10 % choose and the last 20 % test; the history is what the user liked before."""
    add_packages("movielens", [_MOVIELENS])
    folder = next(found for path in sys.path if (found := Path(path) / "recbole" / "dataset_example" / "ml-100k").is_dir())
    users = {row["user_id"]: row for row in _rows(folder / "ml-100k.user")}
    items = {row["item_id"]: row for row in _rows(folder / "ml-100k.item")}
    genres = {name: at for at, name in enumerate(sorted({genre for item in items.values() for genre in item["class"].split()}))}
    jobs = {name: at for at, name in enumerate(sorted({user["occupation"] for user in users.values()}))}
    ratings: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for rating in sorted(_rows(folder / "ml-100k.inter"), key=lambda row: float(row["timestamp"])):
        ratings[rating["user_id"]].append(rating)
    parts: tuple[list[dict[str, object]], ...] = ([], [], [])
    for name, rated in ratings.items():
        user, liked = users[name], list[int]()
        for at, rating in enumerate(rated):
            item, label = items[rating["item_id"]], float(rating["rating"]) >= _LIKED
            parts[int(at >= _TRAIN * len(rated)) + int(at >= _VALID * len(rated))].append(
                {
                    "age": float(user["age"]),
                    "year": float(item["release_year"] or 0) - 1920 if item["release_year"].isdigit() else None,
                    "rated": float(at),
                    "user": int(name),
                    "item": int(rating["item_id"]),
                    "gender": int(user["gender"] == "F"),
                    "occupation": jobs[user["occupation"]],
                    "genres": [genres[genre] for genre in item["class"].split()],
                    "history": liked[-_HISTORY:],
                    "liked": int(label),
                }
            )
            if label:
                liked.append(int(rating["item_id"]))
    config = RankerConfig(
        dense=("age", "year", "rated"),
        sparse=(
            SparseFeature("user", 1 + max(map(int, users))),
            SparseFeature("item", 1 + max(map(int, items))),
            SparseFeature("gender", 2),
            SparseFeature("occupation", len(jobs)),
            SparseFeature("genres", len(genres)),
            SparseFeature("history", 1 + max(map(int, items)), length=_HISTORY),
        ),
        layers=(),
        width=WIDTH,
        tasks=("liked",),
    )
    shuffled = np.random.default_rng(0).permutation(len(parts[0]))
    train = _batches(pa.Table.from_pylist([parts[0][at] for at in shuffled]), config, ROWS_OF_BATCH)
    valid, test = (_batches(pa.Table.from_pylist(part), config, _EVALUATED) for part in parts[1:])
    return Data(config, train, valid, test, epochs=2, table_rate=0.01)


def _rows(path: Path) -> Iterable[dict[str, str]]:
    """Rows of a table of RecBole by column; names of its columns end with `:type`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    names = [name.partition(":")[0] for name in lines[0].split("\t")]
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]


def _batches(table: pa.Table, config: RankerConfig, rows: int) -> list[Batch]:
    return [batch_of(table.slice(at, rows), config) for at in range(0, len(table), rows)]
