"""Two models on the same rows: what differs, whether it is real, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.api import BadInput
from tuneyard.scoring.exchange import Answer
from tuneyard.scoring.paired import Compared, Comparison, ScoredOutput, compare

ROWS = 1200
ODD = ["", " ", "日本語", "👩\u200d👧", "<b>&", "\x00", "the " * 50]


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    return [{"prompt": f"what is {i}?", "answer": f"the right answer is {i}"} for i in range(count)]


def right(share: float, seed: int, count: int = ROWS) -> list[str]:
    """Answers of a model that is right in this share of the rows."""
    correct = np.random.default_rng(seed).random(count) < share
    return [f"the right answer is {i}" if good else "no" for i, good in enumerate(correct)]


def scored(folder: Path, name: str, answers: list[str], metrics: tuple[str, ...] = ("exact_match",), **changes: Any) -> str:
    data = write_rows(folder / "rows.jsonl", rows(len(answers)))
    answer_all(request(folder, name, data, metrics, **changes), lambda row: answers[row])
    return str(folder / name)


def compared(folder: Path, base: list[str], tuned: list[str], metrics: tuple[str, ...] = ("exact_match",)) -> Comparison:
    first, other = scored(folder, "base", base, metrics), scored(folder, "tuned", tuned, metrics, rowsPerPart=5)
    return compare(other, first, names=("tuned", "base"))


def figure(comparison: Comparison, name: str) -> Compared:
    return next(each for each in comparison.figures if each.figure == name)


def test_a_planted_difference_of_five_points_is_found_with_its_interval(tmp_path: Path) -> None:
    base = right(0.5, seed=1)
    worse = iter(np.random.default_rng(2).permutation([i for i, text in enumerate(base) if text == "no"])[:60])
    tuned = list(base)
    for row in worse:
        tuned[row] = f"the right answer is {row}"

    found = figure(compared(tmp_path, base, tuned), "exact_match")

    assert found.difference == pytest.approx(0.05)
    assert (found.real, found.better) == (True, True)
    assert found.interval is not None
    assert 0.035 < found.interval[0] < 0.05 < found.interval[1] < 0.065
    assert (found.wins, found.ties, found.losses) == (60, ROWS - 60, 0)
    assert found.win_share == found.interval


@pytest.mark.parametrize("metric", ["exact_match", "rouge_l", "bleu", "chrf"])
def test_equal_models_have_no_difference(tmp_path: Path, metric: str) -> None:
    same = right(0.5, seed=1, count=200)

    found = figure(compared(tmp_path, same, same, (metric,)), metric)

    assert (found.difference, found.real, found.better, found.p_value) == (0.0, False, None, 1.0)
    assert (found.wins, found.ties, found.losses) == (0, 200, 0)
    assert found.interval == (0.0, 0.0)


def test_models_that_are_right_equally_often_in_other_rows_do_not_really_differ(tmp_path: Path) -> None:
    found = figure(compared(tmp_path, right(0.5, seed=1), right(0.5, seed=2)), "exact_match")

    assert found.real is False
    assert found.interval is not None
    assert found.interval[0] < 0 < found.interval[1]
    assert found.wins + found.ties + found.losses == found.rows == ROWS


def test_few_rows_that_differ_are_no_proof_though_all_favour_one_model(tmp_path: Path) -> None:
    """The bootstrap alone would call 4 of 4 real: the interval leaves 0 out."""
    base = right(0.5, seed=1)
    tuned = list(base)
    for row in [i for i, text in enumerate(base) if text == "no"][:4]:
        tuned[row] = f"the right answer is {row}"

    found = figure(compared(tmp_path, base, tuned), "exact_match")

    assert found.p_value == pytest.approx(0.125, abs=0.03)
    assert found.real is False


@pytest.mark.parametrize("count", [1, 2, 29])
def test_few_rows_have_a_difference_and_no_interval(tmp_path: Path, count: int) -> None:
    found = figure(compared(tmp_path, ["no"] * count, right(1.0, 1, count)), "exact_match")

    assert (found.difference, found.interval, found.real, found.better) == (1.0, None, None, True)
    assert found.wins == count


def test_the_corpus_metric_of_a_comparison_is_that_of_its_task(tmp_path: Path) -> None:
    metrics = ("bleu", "chrf", "rouge_l", "exact_match")
    base, tuned = right(0.4, 1, 90), right(0.8, 2, 90)
    data = write_rows(tmp_path / "rows.jsonl", rows(90))
    whole = {
        name: answer_all(request(tmp_path, name, data, metrics), lambda row, said=said: said[row])
        for name, said in (("base", base), ("tuned", tuned))
    }

    found = compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base"))

    assert {each.figure: each.value for each in found.figures} == pytest.approx(whole["tuned"].metrics)
    assert {each.figure: each.against for each in found.figures} == pytest.approx(whole["base"].metrics)
    assert all(each.real and each.better for each in found.figures)


def test_lower_is_better_for_a_loss(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows(60))
    for name, nll in (("base", 3.0), ("tuned", 2.0)):
        answer_all(request(tmp_path, name, data, ["perplexity"]), lambda row, nll=nll: Answer(None, 0.1, nll=nll + row % 5))

    found = compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base"))

    assert [each.figure for each in found.figures] == ["loss", "perplexity"]
    assert all(each.real and each.better and each.difference < 0 and each.wins == 60 for each in found.figures)


def test_noise_of_batches_is_a_tie(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows(60))
    for name, noise in (("base", 0.0), ("tuned", 1e-8)):
        answer_all(request(tmp_path, name, data, ["perplexity"]), lambda row, noise=noise: Answer(None, 0.1, nll=2.0 + row + noise))

    found = compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base"))

    assert [each.ties for each in found.figures] == [60, 60]


def test_rows_with_an_error_in_one_of_the_two_are_counted_and_left_out(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows(60))
    failing = {"base": {3, 4, 5}, "tuned": {5, 6}}
    for name in failing:
        answer_all(
            request(tmp_path, name, data),
            lambda row, name=name: Answer(None, 0.1, error="too long") if row in failing[name] else "no",
        )

    found = compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base"))

    assert (found.rows, found.errors, found.errors_against, found.errors_both) == (60, 1, 2, 1)
    assert figure(found, "exact_match").rows == 56


def test_the_rows_that_differ_most_are_shown_with_both_answers(tmp_path: Path) -> None:
    base = [f"the right answer is {i}" for i in range(60)]
    tuned = list(base)
    base[7], tuned[40] = "<script>", "日本語"
    tuned[41] = "the right answer is 41 or so"

    found = compared(tmp_path, base, tuned, ("exact_match", "rouge_l"))

    (better,) = found.better_rows
    assert (better.row, better.prompt, better.reference, better.output, better.against) == (
        7,
        "what is 7?",
        "the right answer is 7",
        "the right answer is 7",
        "<script>",
    )
    assert [row.row for row in found.worse_rows] == [40, 41]  # among equal exact matches by ROUGE-L
    assert found.worse_rows[0].values == {"exact_match": 0.0, "rouge_l": 0.0}
    json.dumps(found.to_dict(), allow_nan=False)


def test_hostile_answers_are_compared_like_others(tmp_path: Path) -> None:
    base = [ODD[i % len(ODD)] for i in range(70)]
    tuned = [ODD[(i + 1) % len(ODD)] for i in range(70)]

    found = compared(tmp_path, base, tuned, ("exact_match", "rouge_l", "bleu", "chrf", "json_valid"))

    assert all(np.isfinite([each.value, each.against, each.difference, each.p_value]).all() for each in found.figures)


def test_columns_that_are_not_kept_are_not_shown(tmp_path: Path) -> None:
    data = {"source": str(write_rows(tmp_path / "rows.jsonl", rows(40))), "reference": "answer", "keep": ["answer"]}
    for name, said in (("base", "no"), ("tuned", "the right answer is 3")):
        answer_all(request(tmp_path, name, "unused", source=data), lambda _, said=said: said)

    (row,) = compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base")).better_rows

    assert (row.row, row.prompt, row.reference, row.output) == (3, None, "the right answer is 3", "the right answer is 3")


def test_more_rows_than_units_are_compared_as_exactly(tmp_path: Path) -> None:
    count = 9000
    base, tuned = right(0.50, 1, count), right(0.53, 2, count)
    first = scored(tmp_path, "base", base, rowsPerPart=2000)
    found = figure(compare(scored(tmp_path, "tuned", tuned, rowsPerPart=1500), first, names=("tuned", "base")), "exact_match")

    difference = np.array(
        [a == b for a, b in zip(tuned, [f"the right answer is {i}" for i in range(count)], strict=True)], float
    ) - np.array([a == b for a, b in zip(base, [f"the right answer is {i}" for i in range(count)], strict=True)], float)
    spread = 1.96 * difference.std() / np.sqrt(count)
    assert found.difference == pytest.approx(difference.mean())
    assert found.interval == pytest.approx((difference.mean() - spread, difference.mean() + spread), abs=0.12 * spread)


# --- samples ------------------------------------------------------------------------------------------------------------------------


def test_a_sample_is_compared_with_all_rows_by_the_rows_of_both(tmp_path: Path) -> None:
    data = str(write_rows(tmp_path / "rows.jsonl", rows(200)))
    said = right(0.5, 1, 200)
    answer_all(request(tmp_path, "base", data), lambda row: said[row])
    sampled = {"source": data, "reference": "answer", "sample": 50, "sampleSeed": 3}
    result = answer_all(request(tmp_path, "tuned", data, source=sampled), lambda row: f"the right answer is {row}")

    found = compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base"))

    assert result.rows == found.rows == 50
    assert figure(found, "exact_match").losses == 0
    assert {row.prompt for row in found.better_rows} == {f"what is {row.row}?" for row in found.better_rows}


# --- refusals -----------------------------------------------------------------------------------------------------------------------


def test_other_data_are_refused_with_the_row(tmp_path: Path) -> None:
    first = scored(tmp_path, "base", ["no"] * 40)
    other = [*rows(40)[:20], {"prompt": "something else", "answer": "the right answer is 20"}, *rows(40)[21:]]
    answer_all(request(tmp_path, "tuned", write_rows(tmp_path / "other.jsonl", other)), lambda _: "no")

    with pytest.raises(BadInput, match="row 20 has another prompt or another reference"):
        compare(str(tmp_path / "tuned"), first, names=("tuned", "base"))


def test_an_unfinished_task_is_refused(tmp_path: Path) -> None:
    first = scored(tmp_path, "base", ["no"] * 40)
    answer_all(request(tmp_path, "tuned", tmp_path / "rows.jsonl"), lambda _: "no", parts=[0, 2])

    with pytest.raises(BadInput, match="holds 2 of 6 parts"):
        compare(str(tmp_path / "tuned"), first, names=("tuned", "base"))


def test_tasks_without_a_common_metric_are_refused(tmp_path: Path) -> None:
    first, other = scored(tmp_path, "base", ["no"] * 8, ("bleu",)), scored(tmp_path, "tuned", ["no"] * 8, ("chrf", "rouge_l"))

    with pytest.raises(BadInput, match="no metric in common: chrf, rouge_l in one, bleu in the other"):
        compare(other, first, names=("tuned", "base"))


def test_what_is_no_output_is_refused_with_what_is(tmp_path: Path) -> None:
    first = scored(tmp_path, "base", ["no"] * 8)

    with pytest.raises(BadInput, match="holds no output of a score task"):
        compare(first, str(tmp_path / "nowhere"), names=("tuned", "base"))
    with pytest.raises(BadInput, match="is the output of a whole job") as whole:
        compare(first, str(tmp_path), names=("tuned", "base"))
    assert f"{tmp_path}/base" in whole.value.next_step


def test_parts_of_an_older_version_are_refused(tmp_path: Path) -> None:
    first = scored(tmp_path, "base", ["no"] * 8)
    plan = tmp_path / "base" / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"version": 4}))

    with pytest.raises(BadInput, match="another version of Tuneyard"):
        compare(first, first, names=("tuned", "base"))


def test_a_damaged_part_and_an_output_that_is_written_anew_are_refused_by_name(tmp_path: Path) -> None:
    first, other = (scored(tmp_path, name, ["no"] * 20) for name in ("base", "tuned"))
    parts = tmp_path / "tuned" / "parts"
    whole = (parts / "part-00001.parquet").read_bytes()
    (parts / "part-00001.parquet").write_bytes(whole[:40] + b"\xff" * 40 + whole[80:-8])
    with pytest.raises(BadInput, match=r"tuned/parts/part-00001\.parquet is damaged"):
        compare(other, first, names=("tuned", "base"))
    opened = ScoredOutput.open(other)
    (parts / "part-00001.parquet").unlink()
    with pytest.raises(BadInput, match="was written anew while it was compared"):
        list(opened.tables(["row"]))


def test_an_output_that_is_written_anew_between_two_looks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = (scored(tmp_path, name, ["no"] * 20) for name in ("base", "tuned"))
    tables = ScoredOutput.tables

    def then_written_anew(output: ScoredOutput, columns: Sequence[str]) -> Iterator[Any]:
        yield from tables(output, columns)
        part = tmp_path / "tuned" / "parts" / "part-00000.parquet"
        pq.write_table(pq.read_table(part).append_column("more", [[0] * 7]), part)

    monkeypatch.setattr(ScoredOutput, "tables", then_written_anew)
    with pytest.raises(BadInput, match="tuned was written anew while it was compared"):
        compare(other, first, names=("tuned", "base"))
