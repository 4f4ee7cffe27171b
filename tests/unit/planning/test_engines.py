"""Speed of engines: passes by their bytes and FLOPs, batches, data sets, published tables, and the correction by past runs."""

from itertools import combinations, product
from statistics import median

import pytest
from benchmarks.engine_speed import errors, published, uber
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planning.setups import LLAMA_8B, LLAMA_70B

from tuneyard.api import ScoreTask
from tuneyard.catalog import gpu, known_config, shape_from_config
from tuneyard.planning import resolve_engine_plan
from tuneyard.planning.engines import (
    Engine,
    EngineModel,
    EngineTime,
    RowLengths,
    ScoreCount,
    ScorePlan,
    ScoreRun,
    corrected_by,
    data_set_time,
    row_lengths,
)

H100 = gpu("h100-80gb")
MIXTRAL = shape_from_config(known_config("mistralai/Mixtral-8x7B-v0.1") or {})
COUNT = ScoreCount(rows=1000, prompt_tokens=(100.0, 300.0), reference_tokens=50.0, assumed_tokens=True)


def engine(shape: object = LLAMA_8B, degree: int = 1, sku: str = "h100-80gb") -> Engine:
    model = EngineModel(shape=shape, weight_bytes=2, cache_bytes=2)  # type: ignore[arg-type]
    return Engine(model=model, gpu=gpu(sku), dtype="bf16", tensor_parallel=degree)


def score(**fields: object) -> ScoreTask:
    return ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "d", "prompt": "q", "reference": "a"}, **fields})


def test_a_step_of_one_sequence_reads_all_weights_and_its_cache() -> None:
    own = engine()
    read = 2 * LLAMA_8B.linear_parameters / (3350e9 * own.efficiency.weights)
    cached = 2 * 32 * 8 * 128 * 2 * 1000 / (3350e9 * own.efficiency.cache)
    assert own.decode(1, 1000).decode_s == pytest.approx(read + cached)


def test_a_long_prompt_is_bound_by_flops() -> None:
    flops = 2 * (LLAMA_8B.linear_parameters - LLAMA_8B.head.weights) * 4096 + 2 * LLAMA_8B.head.weights
    spent = engine().prefill(4096).prefill_s
    matmul = flops / (989.4e12 * engine().efficiency.matmul)
    assert matmul < spent < 1.2 * matmul  # and attention


def test_the_experts_that_tokens_touch_are_those_of_all_choices() -> None:
    """Of 8 experts each of two tokens takes 2: the mean number of distinct ones over all choices."""
    pairs = list(combinations(range(8), 2))
    distinct = sum(len({*a, *b}) for a, b in product(pairs, pairs)) / len(pairs) ** 2
    model = EngineModel(shape=MIXTRAL, weight_bytes=1, cache_bytes=1)
    experts = sum(p.layers * p.weights for p in MIXTRAL.projections if p.copies > 1)
    others = sum(p.layers * p.weights for p in MIXTRAL.projections if p.copies == 1)
    assert model.weight_bytes_read(2) == pytest.approx(others + distinct * experts)
    assert model.weight_bytes_read(1) == pytest.approx(others + 2 * experts)
    assert model.weight_bytes_read(10_000) == pytest.approx(others + 8 * experts)


def test_tensor_parallelism_divides_reads_and_adds_collectives() -> None:
    one, four = engine(LLAMA_70B).decode(1, 100), engine(LLAMA_70B, 4).decode(1, 100)
    assert four.decode_s == pytest.approx(one.decode_s / 4, rel=0.01)
    assert (one.collectives_s, four.collectives_s) == (0.0, pytest.approx(160 * 15e-6, rel=0.2))


@given(
    batch=st.integers(1, 200),
    prompt=st.integers(1, 8000),
    output=st.integers(1, 2000),
    shape=st.sampled_from([LLAMA_8B, MIXTRAL]),
    sku=st.sampled_from(["a100-80gb", "h100-80gb", "mi300x-192gb", "t4-16gb"]),
)
def test_larger_batches_have_a_higher_rate_and_slower_sequences(batch: int, prompt: int, output: int, shape: object, sku: str) -> None:
    own, lengths = engine(shape, 2, sku), RowLengths(prompt=prompt, output=output)
    smaller, larger = own.speed(batch, lengths), own.speed(batch + 1, lengths)
    assert larger.output_tokens_per_s >= smaller.output_tokens_per_s * 0.999
    assert (larger.tpot_s or 0) >= (smaller.tpot_s or 0) * 0.999
    assert larger.time.total_s == pytest.approx(sum(vars(larger.time).values()))


def test_a_data_set_takes_its_batches_one_after_the_other() -> None:
    lengths = RowLengths(prompt=200, output=100)
    one = engine().speed(64, lengths).time.total_s
    whole = data_set_time(engine(), lengths, rows=640, engines=2, batch=64)
    assert whole.generation_s == pytest.approx(5 * one)
    assert whole.total_s == pytest.approx(whole.start_s + whole.load_s + 5 * one)
    assert whole.output_tokens_per_s == pytest.approx(640 * 100 / (5 * one))


def test_the_longest_answers_end_after_the_others() -> None:
    alike, unlike = RowLengths(prompt=200, output=100), RowLengths(prompt=200, output=100, longest_output=1000)
    times = [data_set_time(engine(), lengths, rows=64, engines=1, batch=64).generation_s for lengths in (alike, unlike)]
    assert times[1] - times[0] == pytest.approx(900 * engine().decode(3.2, 1200).total_s)


def test_passes_of_a_row_follow_from_its_metrics() -> None:
    answers = row_lengths(score(generation={"maxTokens": 64}), COUNT, max_length=8192)
    assert (answers.prompt, answers.output, answers.evaluated) == (200, 64, 0)
    both = row_lengths(score(metrics=["perplexity", "rouge_l"]), COUNT, max_length=8192)
    assert (both.output, both.evaluated) == (256, 250)
    alone = row_lengths(score(metrics=["perplexity"]), COUNT, max_length=8192)
    assert (alone.output, alone.evaluated) == (0, 250)
    choices = row_lengths(score(choices={"texts": ["A", "B", "C"]}, metrics=["acc"]), COUNT, max_length=8192)
    assert (choices.output, choices.evaluations) == (0, 3)
    known = row_lengths(score(), COUNT, max_length=8192, output_tokens=40)
    assert (known.output, known.longest_output) == (40, 256)


def test_the_batch_is_what_the_cache_holds_of_rows_of_this_length() -> None:
    task = score(engine={"batch": 256, "tensorParallel": 2})
    found = resolve_engine_plan(task, MIXTRAL, H100)
    plan = ScorePlan.of(task, MIXTRAL, H100, found, RowLengths(prompt=4096, output=700), instances=1)
    assert plan.batch == found.kv_tokens // 4796 < 256
    assert [speed.batch for speed in plan.speeds()] == [1, 2, 4, 8, 16, 32, 64, plan.batch]


def test_rows_whose_likelihood_alone_is_asked_for_take_the_cache_of_what_is_evaluated() -> None:
    task = score(engine={"batch": 4096, "tensorParallel": 2})
    found = resolve_engine_plan(task, MIXTRAL, H100)
    plan = ScorePlan.of(task, MIXTRAL, H100, found, RowLengths(prompt=0, output=0, evaluated=4000), instances=1, rows=100_000)
    assert plan.batch == min(task.engine.most_in_flight, found.kv_tokens // 4000)
    assert plan.time(100_000).generation_s > 0


def test_published_tables_are_met_within_a_quarter_on_rows_that_were_not_fitted() -> None:
    held = [row for row in published() if not row.is_fit]
    assert len({row.values["url"] for row in held}) >= 6
    assert median(errors(held)) < 0.25


def test_the_order_of_ubers_figure() -> None:
    a100, h100 = ([uber(batch, sku) for batch in (1, 8, 64)] for sku in ("a100-80gb", "h100-80gb"))
    assert sorted(a100) == a100
    assert all(1.3 < mine / other < 3.2 for mine, other in zip(h100, a100, strict=True))


def test_one_run_moves_the_factors_to_what_it_took() -> None:
    predicted = EngineTime(prefill_s=10, decode_s=60, engine_s=30)
    found = corrected_by([ScoreRun(predicted=predicted, predicted_ready_s=20, generation_s=150, ready_s=30)] * 5)
    corrected = sum(value * getattr(found.terms, name) for name, value in vars(predicted).items())
    assert corrected == pytest.approx(150, rel=0.05)
    assert (found.ready, found.runs) == (1.5, 5)


def test_runs_that_differ_tell_terms_apart_and_a_wrong_run_hardly_moves_them() -> None:
    truth = EngineTime(prefill_s=1.0, decode_s=2.0, engine_s=0.7)
    shapes = [EngineTime(prefill_s=p, decode_s=d, engine_s=e) for p, d, e in ((50, 1, 1), (1, 50, 1), (1, 1, 50), (20, 20, 5))] * 3

    def run(time: EngineTime, factor: float = 1.0) -> ScoreRun:
        took = sum(value * getattr(truth, name) for name, value in vars(time).items()) * factor
        return ScoreRun(predicted=time, predicted_ready_s=1, generation_s=took, ready_s=1)

    found = corrected_by([*map(run, shapes), run(shapes[0], factor=50)])
    assert found.terms.decode_s == pytest.approx(2.0, rel=0.1)
    assert found.terms.engine_s == pytest.approx(0.7, rel=0.1)


def test_no_run_corrects_nothing() -> None:
    assert corrected_by([]).terms == EngineTime(prefill_s=1, decode_s=1, collectives_s=1, engine_s=1)
