"""The page of ranker_ensembles.py, made of its results alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.philly_figures import standalone
from benchmarks.ranker_data import Data
from benchmarks.ranker_results import SEEDS, Result, Row, best_module, least, rows_of, spread
from benchmarks.ranker_training import BY, PARAMETERS, RATES, WITHIN

from tuneyard.tracking.charts import Line

ROOT = Path(__file__).resolve().parents[1]
DRAWN = ("dcn", "dlrm", "dlrm+linear", "dlrm+dcn+linear")
_BESIDE = ("peer", "mixture")
"""Kinds of models that ensembles are compared with."""
_TITLES = {"clicks": "The generated log", "movielens": "MovieLens-100k"}


def write(results: Sequence[Result], data: Mapping[str, Data]) -> None:
    """docs/benchmarks/ranker_ensembles.md, with its picture."""
    from benchmarks.training_cases import write_page

    lines = [*_preface(data)]
    for name in data:
        rows = rows_of([result for result in results if result.data == name])
        if not any(row.kind == "module" for row in rows):
            lines += ["", f"## {_TITLES[name]}", "", "Not trained yet: `--minutes`."]
        else:
            lines += ["", f"## {_TITLES[name]}", "", *_table(rows, data[name]), "", *_answers(rows)]
        if rows and name == "clicks":
            _draw(rows, data[name])
            lines += ["", "![Normalised entropy above that of the true probabilities, by layers](ranker_ensembles.svg)"]
            lines += ["", *_reading(rows)]
    write_page("ranker_ensembles", "Rankers: modules, ensembles and depth", lines)


def _preface(data: Mapping[str, Data]) -> list[str]:
    clicks, movielens = data["clicks"], data["movielens"]
    rates = ", ".join(f"{rate:g}" for rate in RATES)
    return [
        "One core (OMP_NUM_THREADS=1), which other work shared. All models have the same feature layer (embeddings of width",
        f"{clicks.config.width}), {PARAMETERS:,} parameters in their dense part to {100 * WITHIN:.0f} % (by the outputs of their modules;",
        "a peer's by the widths of its networks), and the same steps, batches of 256 rows, order of batches by seed, and optimizer:",
        "Adam with warm-up and linear decay. The rate of the dense part is chosen for each family out of",
        f"{rates} by the first seed's normalised entropy on rows that are neither trained on nor tested on,",
        "with two layers (one where a family has attention or convolution, and for peers). A seed draws weights and order.",
        "The runs were made by several calls with `--minutes`; each is a row of `benchmarks/data/ranker_ensembles.csv`, and a call",
        "trains what it lacks. Where a model has fewer than three seeds, the time was too short.",
        "",
        "DLRM (Naumov et al. 2019) and DCN-v2 (Wang et al. 2021, two full-rank cross layers) are written after their papers in",
        "`benchmarks/ranker_peers.py`.",
        "",
        "Data: no package that was found has a log of clicks with rows enough (Open Bandit's in `obp` has 10,000 rows a",
        "campaign, with 38 to 69 clicks). So the larger part is on the generator of `tuneyard.ranking.click_log`:",
        f"{_rows_in(clicks.train):,} rows, read once, and {_rows_in(clicks.test):,} to test on; its causes are single features,",
        "pairs, triples and a sequence, without noise. The smaller is MovieLens-100k, which RecBole's package ships:",
        f"is a rating 4 or 5? {_rows_in(movielens.train):,} rows, read {movielens.epochs} times, and {_rows_in(movielens.test):,}",
        "to test on, which are the last 20 % of each user's ratings.",
        "",
        "The generator's tables (6 to 100 ids, hidden vectors of 2) were made smaller until a ranker could find pairs and triples in",
        "this many rows; with 1,000 users and 500 items each model found little but the single features. They were not chosen by the order",
        "of models.",
    ]


def _reading(rows: Sequence[Row]) -> list[str]:
    """What stands against reading an order out of the table. Zhang et al. 2022 claim 0.27 % in their abstract."""
    pooled = spread(rows)
    ranges = [max(values) - min(values) for row in rows if (values := [result.normalised_entropy for result in row.results])]
    paper = 0.0027 * best_module(rows).mean
    told = 2 * pooled * (2 / len(SEEDS)) ** 0.5
    return [
        f"Seeds of one model are up to {max(ranges):.4f} apart; their pooled standard deviation is {pooled:.4f}. The paper's whole",
        f"gain over its production model is 0.27 %, which is {paper:.4f} here. With {len(SEEDS)} seeds, a difference is told from chance",
        f"where it is larger than about {told:.4f}: no order of this size can be read out of these runs. It needs more rows for each seed",
        "than this machine trains on in an hour. Models of equal size also have fewer outputs in each layer the more layers and modules",
        "they have; the paper's are not held to equal size.",
        *_told_apart(rows, told),
    ]


def _told_apart(rows: Sequence[Row], told: float) -> list[str]:
    """The best model of ours beside each peer, where chance does not explain the difference."""
    ours = least([row for row in rows if row.kind not in _BESIDE])
    apart = {row.family: ours.mean - row.mean for row in rows if row.kind == "peer" and abs(ours.mean - row.mean) > told}
    if not apart:
        return ["Nor is the best of ours told from a peer."]
    found = ", ".join(f"{peer} is {abs(by):.4f} {'better' if by > 0 else 'worse'}" for peer, by in apart.items())
    return ["", f"Larger than that are: {found} than the best of ours, {_name(ours)}."]


def _rows_in(batches: Sequence[Mapping[str, object]]) -> int:
    return sum(len(batch["labels"]) for batch in batches)  # type: ignore[arg-type]


def _table(rows: Sequence[Row], data: Data) -> list[str]:
    alone, pooled = best_module(rows), spread(rows)
    lines = [
        f"Normalised entropy on the test part, mean ± standard deviation of the seeds; pooled over all models, that is {pooled:.4f}."
        + ("" if data.floor is None else f" The true probabilities have {data.floor:.4f}."),
        "",
        "| kind | model | layers | rate | parameters | seeds | normalised entropy | AUC | to the best module alone | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.mean):
        first = row.results[0]
        deviation = "" if len(row.results) < 2 else f" ± {row.deviation:.4f}"
        auc, seconds = (statistics.fmean(getattr(result, name) for result in row.results) for name in ("auc", "seconds"))
        lines.append(
            f"| {row.kind} | {row.family} | {row.layers if row.kind != 'peer' else ''} | {first.rate:g} | {first.parameters:,} "
            f"| {len(row.results)} | {row.mean:.4f}{deviation} | {auc:.4f} | {row.mean - alone.mean:+.4f} | {seconds:.0f} |"
        )
    return lines


def _answers(rows: Sequence[Row]) -> list[str]:
    """The paper's order, claim by claim. Differences are in normalised entropy, and in pooled standard deviations of one seed."""
    pooled, alone = spread(rows), best_module(rows)
    deep = [row for row in rows if row.kind == "heterogeneous" and row.layers > 1]
    lines = ["| the paper | here: difference, in seeds' standard deviations |", "|---|---|"]
    if deep:
        best = min(deep, key=lambda row: row.mean)
        beaten = [row for row in deep if row.mean < alone.mean]
        lines.append(
            f"| heterogeneous ensembles of several layers beat each module alone | {len(beaten)} of {len(deep)} do; best: {_name(best)} to "
            f"{_name(alone)} {_apart(best, alone, pooled)} |"
        )
        same = [row for row in rows if row.kind == "homogeneous"]
        if same:
            lines.append(f"| and ensembles of one module | {_name(best)} to {_name(other := least(same))} {_apart(best, other, pooled)} |")
    for family in dict.fromkeys(row.family for row in rows if row.kind in ("heterogeneous", "homogeneous")):
        depths = sorted((row for row in rows if row.family == family), key=lambda row: row.layers)
        if len(depths) > 1:
            steps = "; ".join(f"{row.layers} layers {_apart(row, depths[0], pooled)}" for row in depths[1:])
            lines.append(f"| gains grow with depth: {family}, to one layer | {steps} |")
    for row in rows:
        same = [other for other in rows if BY in row.family and (other.family, other.layers) == (row.family.partition(BY)[0], row.layers)]
        lines += [
            f"| sums serve as well as concatenation | {_name(row)} to {_name(other)} {_apart(row, other, pooled)} |" for other in same
        ]
    ours = least([row for row in rows if row.kind not in _BESIDE])
    lines += [
        f"| an ensemble beats {peer.family} | {_name(ours)} to {_peer(peer)} {_apart(ours, peer, pooled)} |"
        for peer in rows
        if peer.kind in _BESIDE
    ]
    return lines


def _peer(row: Row) -> str:
    return row.family if row.kind == "peer" else _name(row)


def _name(row: Row) -> str:
    return f"{row.family} x {row.layers}"


def _apart(row: Row, other: Row, pooled: float) -> str:
    difference = row.mean - other.mean
    return f"{difference:+.4f} ({difference / pooled:+.1f})"


def _draw(rows: Sequence[Row], data: Data) -> None:
    floor = data.floor or 0.0
    lines = [
        Line(family, sorted((row.layers, row.mean - floor) for row in rows if row.family == family), f"s{at}")
        for at, family in enumerate(DRAWN)
    ]
    chart = standalone([line for line in lines if line.points], "Normalised entropy above the floor", over="layers")
    (ROOT / "docs" / "benchmarks" / "ranker_ensembles.svg").write_text(chart, encoding="utf-8")
