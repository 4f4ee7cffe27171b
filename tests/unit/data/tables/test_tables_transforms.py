"""Transformations: each kernel equals a few lines of plain Python on the same rows; a pipeline is checked before the first batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.data.tables import Pipeline
from tuneyard.data.tables.features import entry_of
from tuneyard.data.tables.transforms import OPERATIONS, id_steps

INTS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-5, 20)
FLOATS = st.floats(-1e6, 1e6)
IDS = st.lists(INTS | st.none(), max_size=5) | st.none()
SMALL_IDS = st.lists(SMALL | st.none(), max_size=6) | st.none()
MASK = 2**64 - 1


def mix(value: int, seed: int) -> int:
    """SplitMix64's finalizer in whole numbers of Python."""
    state = (value + seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def combine(first: int, second: int) -> int:
    return mix((3 * first + second) & MASK, 1)


def each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def on(value: Any) -> Any:
        if value is None:
            return None
        return [function(one) for one in value if one is not None] if isinstance(value, list) else function(value)

    return on


def ids(value: list[int | None] | None) -> list[int]:
    return [one for one in value or [] if one is not None]


def n_grams(value: list[int | None] | None) -> list[int] | None:
    if value is None:
        return None
    found = []
    for start in range(len(ids(value)) - 1):
        one, two = ids(value)[start : start + 2]
        found.append(combine(mix(one, 7), mix(two, 7)) % 1000)
    return found


def cartesian(first: list[int | None] | None, second: list[int | None] | None) -> list[int] | None:
    if first is None or second is None:
        return None
    return [combine(mix(a, 0), mix(b, 0)) % 99 for a in ids(first) for b in ids(second)]


def union(*lists: list[int | None] | None) -> list[int] | None:
    if all(one is None for one in lists):
        return None
    return list(dict.fromkeys(number for one in lists for number in ids(one)))


def by_score(pairs: list[tuple[int | None, float | None]] | None) -> list[int] | None:
    """The two ids with the highest scores; unknown scores last."""
    if pairs is None:
        return None
    known = [(one, score) for one, score in pairs if one is not None]
    known.sort(key=lambda pair: -math.inf if pair[1] is None or math.isnan(pair[1]) else pair[1], reverse=True)
    return [one for one, _ in known][:2]


def box_cox(power: float) -> Callable[[float], float]:
    def on(value: float) -> float:
        positive = max(value + 1.0, 1e-6)
        return math.log(positive) if power == 0 else (positive**power - 1) / power

    return on


def logit(value: float) -> float:
    p = min(max(value, 0.01), 0.99)
    return math.log(p / (1 - p))


ID_LISTS, SCALARS = pa.list_(pa.int64()), pa.int64()
NUMBERS = pa.list_(pa.float64())
UNSIGNED = st.lists(st.integers(0, 9) | st.none(), max_size=4) | st.none()
NUMBER_LISTS = st.lists(FLOATS | st.none(), max_size=4) | st.none()

CASES: list[tuple[dict[str, Any], list[tuple[pa.DataType, st.SearchStrategy[Any]]], Callable[..., Any]]] = [
    ({"op": "sigrid_hash", "table_size": 1000, "seed": 3}, [(ID_LISTS, IDS)], each(lambda v: mix(v, 3) % 1000)),
    ({"op": "sigrid_hash", "table_size": 2**40}, [(SCALARS, INTS | st.none())], each(lambda v: mix(v, 0) % 2**40)),
    (
        {"op": "sigrid_hash", "table_size": 1000},
        [(pa.string(), st.text(max_size=4) | st.none())],
        each(lambda v: mix(xxhash.xxh3_64_intdigest(v.encode()), 0) % 1000),
    ),
    ({"op": "positive_modulus", "modulus": 7}, [(ID_LISTS, IDS)], each(lambda v: v % 7)),
    (
        {"op": "map_id", "mapping": {1: 10, -2: 20, 9: 30}, "default": -1},
        [(ID_LISTS, SMALL_IDS)],
        each(lambda v: {1: 10, -2: 20, 9: 30}.get(v, -1)),
    ),
    ({"op": "first_x", "count": 2}, [(ID_LISTS, IDS)], lambda v: None if v is None else ids(v)[:2]),
    ({"op": "enumerate"}, [(ID_LISTS, IDS)], lambda v: None if v is None else list(range(len(ids(v))))),
    ({"op": "n_gram", "length": 2, "table_size": 1000, "seed": 7}, [(ID_LISTS, IDS)], n_grams),
    ({"op": "cartesian", "table_size": 99}, [(ID_LISTS, IDS), (ID_LISTS, IDS)], cartesian),
    (
        {"op": "cartesian", "table_size": 99},
        [(SCALARS, INTS | st.none()), (ID_LISTS, IDS)],
        lambda a, b: cartesian(None if a is None else [a], b),
    ),
    (
        {"op": "id_list_transform"},
        [(ID_LISTS, SMALL_IDS), (ID_LISTS, SMALL_IDS)],
        lambda a, b: None if a is None or b is None else [v for v in ids(a) if v in ids(b)],
    ),
    ({"op": "union"}, [(ID_LISTS, SMALL_IDS), (ID_LISTS, SMALL_IDS)], union),
    ({"op": "union"}, [(ID_LISTS, IDS), (pa.list_(pa.int8()), SMALL_IDS), (pa.large_list(pa.uint16()), UNSIGNED)], union),
    (
        {"op": "normalize", "mean": 3, "variance": 4},
        [(NUMBERS, NUMBER_LISTS)],
        each(lambda v: (v - 3) / 2),
    ),
    ({"op": "normalize", "mean": -0.5, "variance": 0.01}, [(pa.int32(), SMALL | st.none())], each(lambda v: (v + 0.5) / 0.1)),
    ({"op": "clamp", "low": -1.5, "high": 2.5}, [(NUMBERS, NUMBER_LISTS)], each(lambda v: min(max(v, -1.5), 2.5))),
    ({"op": "clamp", "low": -300, "high": 5}, [(pa.int8(), st.integers(-128, 127) | st.none())], each(lambda v: min(v, 5))),
    ({"op": "bucketize", "borders": [-1, 0, 2.5]}, [(NUMBERS, NUMBER_LISTS)], each(lambda v: sum(v >= b for b in (-1, 0, 2.5)))),
    ({"op": "box_cox", "power": 0.5, "shift": 1}, [(pa.float64(), FLOATS | st.none())], each(box_cox(0.5))),
    ({"op": "box_cox", "power": 0, "shift": 1}, [(NUMBERS, NUMBER_LISTS)], each(box_cox(0))),
    ({"op": "logit", "epsilon": 0.01}, [(pa.float64(), st.floats(-1, 2) | st.none())], each(logit)),
    ({"op": "log1p"}, [(pa.float32(), st.floats(-10, 1e6, width=32) | st.none())], each(lambda v: math.log1p(max(v, 0.0)))),
    ({"op": "one_hot", "size": 4}, [(SCALARS, SMALL | st.none())], lambda v: [float(v == k) for k in range(4)]),
    (
        {"op": "get_local_hour", "time_zone": "Europe/Vienna"},
        [(SCALARS, st.integers(0, 2_100_000_000) | st.none())],
        each(lambda v: datetime.fromtimestamp(v, UTC).astimezone(ZoneInfo("Europe/Vienna")).hour),
    ),
]


def close(found: Any, expected: Any) -> bool:
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(close(a, b) for a, b in zip(found, expected, strict=True))
    if isinstance(expected, float) and found is not None:
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
    return bool(found == expected)


@pytest.mark.parametrize(("step", "inputs", "reference"), CASES, ids=[f"{number}-{case[0]['op']}" for number, case in enumerate(CASES)])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_kernel_equals_plain_python(step: dict[str, Any], inputs: Any, reference: Callable[..., Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*(values for _, values in inputs)), max_size=8))
    cut = data.draw(st.integers(0, len(rows)))
    names = [f"in{number}" for number in range(len(inputs))]
    arrays = [pa.array([row[number] for row in rows], kind) for number, (kind, _) in enumerate(inputs)]
    batch = pa.RecordBatch.from_arrays(arrays, names).slice(cut)
    pipeline = Pipeline.of([{**step, "inputs": names, "output": "out"}])
    made = pipeline.run(batch)
    made.validate(full=True)
    assert made.schema.equals(pipeline.check(batch.schema))
    assert close(made.column("out").to_pylist(), [reference(*row) for row in rows[cut:]])


def test_every_operation_is_compared_with_plain_python() -> None:
    assert {step["op"] for step, _, _ in CASES} | {"compute_score", "sampling", "sort_by_score"} == set(OPERATIONS)


PAIRS = st.lists(st.tuples(SMALL | st.none(), st.sampled_from([0.0, -1.5, 7.0, math.nan, math.inf]) | st.none()), max_size=6)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(PAIRS | st.none(), max_size=6), cut=st.integers(0, 6))
def test_ids_with_the_highest_scores_come_first_and_those_of_unknown_score_last(rows: list[Any], cut: int) -> None:
    lists = [pa.array([row and [pair[at] for pair in row] for row in rows], kind) for at, kind in enumerate((ID_LISTS, NUMBERS))]
    batch = pa.RecordBatch.from_arrays(lists, ["ids", "scores"]).slice(min(cut, len(rows)))
    made = Pipeline.of([{"op": "sort_by_score", "inputs": ["ids", "scores"], "output": "best", "count": 2}]).run(batch)
    made.validate(full=True)
    assert made.column("best").to_pylist() == [by_score(row) for row in rows[min(cut, len(rows)) :]]


def test_scores_of_whole_numbers_are_compared_exactly_and_all_ids_stay_without_a_count() -> None:
    batch = pa.RecordBatch.from_pydict({"ids": [[1, 2, 3], [4]], "scores": [[2**62, 2**62 + 1, -(2**63)], None]})
    made = Pipeline.of([{"op": "sort_by_score", "inputs": ["ids", "scores"], "output": "ids"}]).run(batch)
    assert made.column("ids").to_pylist() == [[2, 1, 3], None]


@pytest.mark.parametrize("scores", [[0.5], [0.5, 1.0, 2.0], []])
def test_a_row_with_fewer_or_more_scores_than_ids_is_refused_by_its_number(scores: list[float]) -> None:
    batch = pa.RecordBatch.from_pydict({"ids": [[9], [1, 2]], "scores": [[0.1], scores]})
    with pytest.raises(BadInput, match=f"sort_by_score has 2 ids and {len(scores)} scores in row 1 of a batch of 2 rows"):
        Pipeline.of([{"op": "sort_by_score", "inputs": ["ids", "scores"], "output": "best"}]).run(batch)


def test_a_column_without_any_value_adds_nothing_to_a_union() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(3), pa.array([[2, 2], None, []], ID_LISTS)], ["none", "some"])
    steps = Pipeline.of([{"op": "union", "inputs": ["none", "some"], "output": "all"}])
    assert steps.run(batch).column("all").to_pylist() == [[2], None, []]


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.lists(st.tuples(SMALL, st.floats(0, 100) | st.none()), max_size=4) | st.none(), max_size=8), cut=st.integers(0, 8))
def test_scores_of_a_map_are_computed_in_place(rows: list[Any], cut: int) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.map_(pa.int64(), pa.float32()))], ["scores"]).slice(min(cut, len(rows)))
    step = {"op": "compute_score", "inputs": ["scores"], "output": "scores", "scale": 2, "power": 0.5, "bias": 1}
    made = Pipeline.of([step]).run(batch).column("scores").to_pylist()
    expected = [
        None if row is None else [(key, None if score is None else 2 * score**0.5 + 1) for key, score in row]
        for row in batch.column("scores").to_pylist()
    ]
    assert [row and [key for key, _ in row] for row in made] == [row and [key for key, _ in row] for row in expected]
    assert close([[s for _, s in row or []] for row in made], [[s for _, s in row or []] for row in expected])


def test_hashes_are_the_same_on_every_machine_and_in_every_release() -> None:
    batch = pa.RecordBatch.from_pydict({"ids": [[0, 1, -1, 2**62]], "text": ["tuneyard"]})
    steps = [
        {"op": "sigrid_hash", "inputs": ["ids"], "output": "ids", "table_size": 10**6, "seed": 1},
        {"op": "sigrid_hash", "inputs": ["text"], "output": "text", "table_size": 10**6},
    ]
    assert Pipeline.of(steps).run(batch).to_pylist() == [{"ids": HASHED_IDS, "text": HASHED_TEXT}]


HASHED_IDS = [355700, 428519, 888969, 295485]
HASHED_TEXT = 841088


def test_hashes_fill_the_table_evenly() -> None:
    batch = pa.RecordBatch.from_pydict({"ids": list(range(100_000))})
    made = Pipeline.of([{"op": "sigrid_hash", "inputs": ["ids"], "output": "ids", "table_size": 100}]).run(batch)
    counts = [count["counts"] for count in made.column("ids").value_counts().to_pylist()]
    assert len(counts) == 100
    assert max(abs(count - 1000) for count in counts) < 5 * math.sqrt(1000)


@pytest.mark.parametrize("keys", [list(range(20_000)), [f"request {number}" for number in range(20_000)]], ids=["numbers", "texts"])
def test_sampling_keeps_the_same_rows_in_any_batch(keys: list[Any]) -> None:
    batch = pa.RecordBatch.from_pydict({"key": keys, "row": list(range(len(keys)))})
    sample = Pipeline.of([{"op": "sampling", "key": "key", "rate": 0.1, "seed": 5}])
    whole = sample.run(batch).column("row").to_pylist()
    assert len(whole) == pytest.approx(2000, abs=5 * math.sqrt(1800))
    parts = [row for start in range(0, 20_000, 700) for row in sample.run(batch.slice(start, 700)).column("row").to_pylist()]
    assert parts == whole
    more = Pipeline.of([{"op": "sampling", "key": "key", "rate": 0.2, "seed": 5}]).run(batch).column("row").to_pylist()
    assert set(whole) <= set(more)
    other = Pipeline.of([{"op": "sampling", "key": "key", "rate": 0.1, "seed": 6}]).run(batch).column("row").to_pylist()
    assert len(set(whole) & set(other)) < 300


@pytest.mark.parametrize(("rate", "kept"), [(0.0, []), (1.0, [0, 2])])
def test_rows_without_a_key_are_dropped(rate: float, kept: list[int]) -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array([1, None, 3]), "row": [0, 1, 2]})
    assert Pipeline.of([{"op": "sampling", "key": "key", "rate": rate}]).run(batch).column("row").to_pylist() == kept


def test_steps_see_what_the_steps_before_them_made() -> None:
    pipeline = Pipeline.of(
        [
            {"op": "first_x", "inputs": ["clicks"], "output": "recent", "count": 2},
            {"op": "bucketize", "inputs": ["age"], "output": "age_group", "borders": [18, 65]},
            {"op": "cartesian", "inputs": ["recent", "age_group"], "output": "cross", "table_size": 1000},
            {"op": "sampling", "key": "request", "rate": 1.0},
        ]
    )
    assert pipeline.features == ("clicks", "age", "request")
    batch = pa.RecordBatch.from_pydict({"clicks": [[1, 2, 3], None], "age": [70.0, None], "request": [1, 2]})
    made = pipeline.run(batch)
    assert made.schema.names == ["clicks", "age", "request", "recent", "age_group", "cross"]
    assert made.column("recent").to_pylist() == [[1, 2], None]
    assert made.column("age_group").to_pylist() == [2, None]
    assert [row and len(row) for row in made.column("cross").to_pylist()] == [2, None]
    assert Pipeline.model_validate_json(pipeline.model_dump_json()) == pipeline


SCHEMA = pa.schema([("age", pa.float64()), ("clicks", pa.list_(pa.int64())), ("name", pa.string())])


@pytest.mark.parametrize(
    ("step", "cause", "next_step"),
    [
        ({"op": "clmap", "inputs": ["age"], "output": "x"}, "no operation 'clmap'", "did you mean clamp"),
        ({}, "no operation None", "use one of"),
        ({"op": "clamp", "inputs": ["age"], "output": "x", "low": 0}, "high: required field is missing", "docs/tables.md"),
        ({"op": "clamp", "inputs": ["age"], "output": "x", "low": 2, "high": 1}, "low 2.0 is above high 1.0", ""),
        ({"op": "clamp", "inputs": ["age"], "output": "x", "low": 0, "high": 1, "hihg": 1}, "hihg: unknown field (did you mean high?)", ""),
        (
            {"op": "bucketize", "inputs": ["age"], "output": "x", "borders": [2, 1]},
            "step 1 (bucketize): borders must ascend; found 2, 1",
            "",
        ),
        ({"op": "first_x", "inputs": ["age"], "output": "x", "count": 2}, "it takes lists of whole numbers, this is double", ""),
        ({"op": "first_x", "inputs": ["click"], "output": "x", "count": 2}, "no feature 'click'", "did you mean clicks?"),
        ({"op": "cartesian", "inputs": ["clicks"], "output": "x", "table_size": 2}, "it takes 2 inputs, and 1 are named", ""),
        ({"op": "logit", "inputs": ["name"], "output": "x"}, "numbers or lists of numbers, this is string", ""),
        ({"op": "one_hot", "inputs": ["age"], "output": "x", "size": 2}, "whole numbers, this is double", ""),
        ({"op": "get_local_hour", "inputs": ["clicks"], "output": "x", "time_zone": "UTC"}, "timestamps", ""),
        ({"op": "sampling", "key": "age", "rate": 0.5}, "whole numbers or texts, this is double", ""),
        ({"op": "sampling", "key": "name", "rate": 1.5}, "rate: must be at most 1; found 1.5", ""),
        ({"op": "compute_score", "inputs": ["age"], "output": "x"}, "a map of scores by id", ""),
        ({"op": "union", "inputs": ["clicks"], "output": "x"}, "it takes 2 to 64 inputs, and 1 are named", ""),
        ({"op": "union", "inputs": ["clicks", "name"], "output": "x"}, "it takes lists of whole numbers, this is string", ""),
        ({"op": "sort_by_score", "inputs": ["age", "clicks"], "output": "x"}, "lists of whole numbers first, this is double", ""),
        ({"op": "sort_by_score", "inputs": ["clicks", "age"], "output": "x"}, "lists of numbers as scores, this is double", ""),
        ({"op": "normalize", "inputs": ["name"], "output": "x"}, "numbers or lists of numbers, this is string", ""),
        ({"op": "normalize", "inputs": ["age"], "output": "x", "mean": 1}, "give mean and variance, or neither", ""),
        ({"op": "normalize", "inputs": ["age"], "output": "x", "mean": 1, "variance": 0}, "variance: must be above 0", ""),
    ],
)
def test_a_step_that_cannot_work_is_refused_before_the_first_batch(step: dict[str, Any], cause: str, next_step: str) -> None:
    with pytest.raises(BadInput) as error:
        Pipeline.of([step]).check(SCHEMA)
    assert cause in error.value.cause
    assert next_step in error.value.next_step


@pytest.mark.parametrize(("zone", "advice"), [("Europe/Nowhere", "such as Europe/Vienna"), ("Chicago", "such as America/Chicago")])
def test_a_time_zone_that_does_not_exist_is_refused(zone: str, advice: str) -> None:
    with pytest.raises(BadInput, match=f"there is no time zone '{zone}': give an IANA name, {advice}"):
        Pipeline.of([{"op": "get_local_hour", "inputs": ["t"], "output": "h", "time_zone": zone}])


def test_times_of_another_unit_have_no_hour() -> None:
    hour = Pipeline.of([{"op": "get_local_hour", "inputs": ["t"], "output": "h", "time_zone": "Europe/Vienna"}])
    for times in (
        pa.array([1_700_000_000_000_000, 0, None, -(2**62)]),
        pa.array([2**63, 0, None, 2**64 - 1], pa.uint64()),
        pa.array([2**62, 0, None, -(2**62)], pa.timestamp("s")),
    ):
        assert hour.run(pa.RecordBatch.from_arrays([times], ["t"])).column("h").to_pylist() == [None, 1, None, None]


NAMED = Pipeline.of(
    [
        {"op": "first_x", "inputs": ["clicks"], "output": "recent", "count": 2},
        {"op": "sigrid_hash", "inputs": ["recent"], "output": "recent", "table_size": 9},
        {"op": "clamp", "inputs": ["age"], "output": "age", "low": 0, "high": 9},
        {"op": "sampling", "key": "age", "rate": 0.5},
        {"op": "log1p", "inputs": ["price"], "output": "price_log"},
    ]
)


def test_a_pipeline_knows_what_some_outputs_are_made_from() -> None:
    assert NAMED.reads(["recent", "country"]) == ("country", "age", "clicks")  # sampling needs the clamped age
    assert NAMED.without_sampling.reads(["recent", "country"]) == ("country", "clicks")
    assert [step.op for step in NAMED.without_sampling.making(["recent"]).steps] == ["first_x", "sigrid_hash"]
    assert NAMED.without_sampling.reads(["price_log", "price"]) == ("price",)
    assert not NAMED.without_sampling.making(["price"]).steps


@pytest.mark.parametrize(("step", "inputs", "reference"), CASES, ids=[f"{number}-{case[0]['op']}" for number, case in enumerate(CASES)])
def test_columns_without_a_type_give_nulls_and_no_rows_give_none(step: dict[str, Any], inputs: Any, reference: Any) -> None:  # noqa: ARG001
    names = [f"in{number}" for number in range(len(inputs))]
    pipeline = Pipeline.of([{**step, "inputs": names, "output": "out"}])
    kinds = [kind for kind, _ in inputs]
    empty = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds], names)
    assert pipeline.run(empty).column("out").to_pylist() == []
    for missing in range(len(inputs)):
        arrays = [pa.nulls(3) if number == missing else pa.nulls(3, kind) for number, kind in enumerate(kinds)]
        made = pipeline.run(pa.RecordBatch.from_arrays(arrays, names))
        assert made.schema.equals(pipeline.check(made.schema))
        assert made.column("out").to_pylist() == [None] * 3


def test_dictionary_encoded_texts_hash_as_texts() -> None:
    texts = pa.array(["ann", None, "bob", "ann"])
    steps = Pipeline.of([{"op": "sigrid_hash", "inputs": ["x"], "output": "y", "table_size": 1000}])
    plain, coded = (steps.run(pa.RecordBatch.from_arrays([each], ["x"])).column("y") for each in (texts, texts.dictionary_encode()))
    assert coded.equals(plain)


def test_pairs_are_made_in_parts_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [[*range(row % 7)] for row in range(200)]
    batch = pa.RecordBatch.from_pydict({"a": lists, "b": [row[::-1] for row in lists]})
    pipeline = Pipeline.of([{"op": "cartesian", "inputs": ["a", "b"], "output": "x", "table_size": 1000}])
    whole = pipeline.run(batch)
    for most in (1, 5, 100):
        monkeypatch.setattr(id_steps, "_PAIRS_AT_ONCE", most)
        assert pipeline.run(batch).equals(whole)


def test_a_row_of_too_many_pairs_is_refused_before_they_are_made() -> None:
    pipeline = Pipeline.of([{"op": "cartesian", "inputs": ["a", "a"], "output": "x", "table_size": 10}])
    with pytest.raises(BadInput, match="400,000,000 pairs in row 1 of a batch of 2 rows") as caught:
        pipeline.run(pa.RecordBatch.from_pydict({"a": [[1], list(range(20_000))]}))
    assert "first_x" in caught.value.next_step


def test_ids_beyond_the_signed_ones_have_their_own_remainder() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([2**64 - 1, 8, None], pa.uint64())], names=["a"])
    made = Pipeline.of([{"op": "positive_modulus", "inputs": ["a"], "output": "x", "modulus": 7}]).run(batch)
    assert made.column("x").to_pylist() == [1, 1, None]


@pytest.mark.parametrize("name", ["m[01]", "m[-0]", "m[１]", "m[+1]", "m[ 1]"])
def test_an_entry_of_a_map_has_one_spelling(name: str) -> None:
    assert entry_of(name) is None
    assert [entry_of(f"m[{key}]") for key in ("0", "10", "-3")] == [("m", 0), ("m", 10), ("m", -3)]


@pytest.mark.parametrize("op", ["union", "sort_by_score"])
def test_ids_that_would_become_negative_are_refused(op: str) -> None:
    big = pa.array([[2**64 - 1, 3]], pa.list_(pa.uint64()))
    batch = pa.RecordBatch.from_pydict({"a": big, "b": pa.array([[1, 2]], pa.list_(pa.int64()))})
    steps = Pipeline.of([{"op": op, "inputs": ["a", "b"], "output": "o"}])
    with pytest.raises(BadInput, match=rf"step 1 \({op}\) of a, b: 18446744073709551615 is no id"):
        steps.run(batch)
