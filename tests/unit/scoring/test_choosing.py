"""Multiple choice by likelihood: what is asked, who is right, and what is refused; with the formulas of lm-evaluation-harness."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.models import tokenizer_of
from tests.unit.scoring.scored_by_hand import answer_all, write_rows
from tests.unit.scoring.test_answers import task_of

from tuneyard.api import BadInput
from tuneyard.metrics import METRICS
from tuneyard.metrics.choices import Chosen
from tuneyard.scoring.exchange import Answer
from tuneyard.scoring.prompts import BadRow, PromptEncoder
from tuneyard.scoring.rows import ScoredRow

FIGURES = ["acc", "acc_norm", "calibration_error"]
ROW: dict[str, Any] = {"prompt": "The capital of France is", "choices": ["Rome", "Paris", "Ulaanbaatar"]}


def run(folder: Path, rows: list[dict[str, Any]], nlls: list[float], **score: Any) -> tuple[Any, list[dict[str, Any]], list[str]]:
    """The result, the rows, and what was asked. `nlls`: of the requests in turn."""
    write_rows(folder / "rows.jsonl", rows)
    (folder / "m").mkdir(exist_ok=True)
    given, seen = iter(nlls), list[str]()
    fields = {"metrics": FIGURES, "choices": {"column": "choices"}, **score}
    result = answer_all(task_of(folder, "t", **fields), lambda _: Answer(None, 0.1, nll=next(given)), seen=seen)
    return result, pq.read_table(result.output).to_pylist(), seen


def test_the_likeliest_choice_is_the_answer(tmp_path: Path) -> None:
    rows = [{**ROW, "answer": "Paris"}, {**ROW, "answer": "C"}, {**ROW, "answer": 0}]

    result, scored, seen = run(tmp_path, rows, [3.0, 1.0, 2.0] * 3)

    assert seen == [f"The capital of France is {choice}" for choice in ROW["choices"]] * 3
    assert [row["output"] for row in scored] == ["Paris"] * 3
    assert [row["choice_logs"] for row in scored] == [[-3.0, -1.0, -2.0]] * 3
    assert [(row["acc"], row["acc_norm"]) for row in scored] == [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    confidence = math.exp(-1) / (math.exp(-1) + math.exp(-2) + math.exp(-3))
    assert result.metrics == pytest.approx({"acc": 1 / 3, "acc_norm": 1 / 3, "calibration_error": confidence - 1 / 3})


def test_letters_stand_under_the_prompt(tmp_path: Path) -> None:
    _, scored, seen = run(tmp_path, [{**ROW, "answer": "B"}], [1.0, 0.5, 2.0], choices={"column": "choices", "by": "letter"})

    assert seen[1] == "The capital of France is\nA. Rome\nB. Paris\nC. Ulaanbaatar\nAnswer: B"
    assert (scored[0]["output"], scored[0]["acc"], scored[0]["acc_norm"]) == ("Paris", 1.0, 1.0)


@pytest.mark.parametrize("value", [["yes", "no"], {"text": ["yes", "no"], "label": ["1", "2"]}, '["yes", "no"]'])
def test_choices_are_a_list_a_group_of_arc_or_a_cell_of_csv(tmp_path: Path, value: Any) -> None:
    right = "2" if isinstance(value, dict) else "no"

    _, scored, _ = run(tmp_path, [{"prompt": "p", "choices": value, "answer": right}], [2.0, 1.0])

    assert (scored[0]["error"], scored[0]["acc"]) == (None, 1.0)


@pytest.mark.parametrize(("answer", "right"), [(0, 0), ("0", 3), ("A", 0), ("1", 0), (3, 3)])
def test_a_number_of_the_file_is_a_place_before_it_is_a_text(tmp_path: Path, answer: Any, right: int) -> None:
    logs = [float(place != right) for place in range(4)]

    _, scored, _ = run(tmp_path, [{"prompt": "p", "choices": ["1", "2", "3", "0"], "answer": answer}], logs)

    assert (scored[0]["error"], scored[0]["acc"]) == (None, 1.0)


def test_all_rows_may_have_the_same_choices_and_count_them_from_one(tmp_path: Path) -> None:
    choices = {"texts": ["negative", "positive"], "firstNumber": 1}

    _, scored, _ = run(tmp_path, [{"prompt": "p", "answer": 2}, {"prompt": "p", "answer": 0}], [2.0, 1.0] * 2, choices=choices)

    assert scored[0]["acc"] == 1.0
    assert scored[1]["error"] == "the reference '0' is no choice: it is no text, no letter (A to B) and no number (1 to 2) of one"


@pytest.mark.parametrize(
    ("choices", "answer", "words"),
    [
        (["a", "a "], "a", "choices 1 and 2 are the same text: 'a'"),
        (["a", " "], "a", "choice 2 of 2 is empty"),
        (["a"], "a", "the row has 1 choices; it needs 2 to 26"),
        ([], "a", "the row has 0 choices; it needs 2 to 26"),
        ([str(n) for n in range(27)], "1", "the row has 27 choices; it needs 2 to 26"),
        (None, "a", "choices is missing, not a list of choices"),
        ("a, b", "a", "choices is text, not a list of choices"),
        ({"label": ["a"]}, "a", "choices is missing, not a list of choices"),
        (["a", None], "a", "choices[1] is missing, not text"),
        (["a", True], "a", "choices[1] is bool, not text"),
        (["a", ["b"]], "a", "choices[1] is list, not text"),
        (["a", "b"], None, "the row has no references, but one choice is right"),
        (["a", "b"], ["a", "b"], "the row has 2 references, but one choice is right"),
        (["a", "b"], "C", "the reference 'C' is no choice: it is no text, no letter (A to B) and no number (0 to 1) of one"),
    ],
)
def test_bad_choices_are_errors_of_their_rows_in_words(tmp_path: Path, choices: Any, answer: Any, words: str) -> None:
    result, scored, seen = run(tmp_path, [{"prompt": "p", "choices": choices, "answer": answer}], [])

    assert (scored[0]["error"], result.errors, result.metrics, seen) == (words, 1, {}, [])


def test_a_missing_column_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column choises \(choices\.column\).*\n?.*did you mean choices\?"):
        run(tmp_path, [{**ROW, "answer": "Paris"}], [], choices={"column": "choises"})


LOGS = st.lists(st.floats(-300, 0), min_size=2, max_size=6)


@given(rows=st.lists(st.tuples(LOGS, st.integers(0, 5)), min_size=1, max_size=40), seed=st.integers(0, 9))
def test_accuracies_and_calibration_are_those_of_their_definitions(rows: list[tuple[list[float], int]], seed: int) -> None:
    """lm-evaluation-harness: `np.argmax(lls)` and `np.argmax(lls / completion_len)`; Guo et al. 2017, equation 3, with ten bins."""
    chance = np.random.default_rng(seed)
    scored, acc, acc_norm, bins = [], [], [], list[tuple[int, float, bool]]()
    for logs, right in rows:
        lls, sizes, gold = np.array(logs), chance.integers(1, 40, len(logs)), right % len(logs)
        acc.append(float(np.argmax(lls) == gold))
        acc_norm.append(float(np.argmax(lls / sizes.astype(float)) == gold))
        softmax = np.exp(lls - lls.max()) / np.exp(lls - lls.max()).sum()
        place = next(each for each in range(10) if softmax.max() <= (each + 1) / 10 or each == 9)
        bins.append((place, float(softmax.max()), bool(np.argmax(lls) == gold)))
        row = ScoredRow(0, output="x", references=("r",), choices=Chosen(tuple(logs), tuple(sizes.tolist()), gold))
        for name in FIGURES:
            METRICS[name].measure(row)
        scored.append(row)

    error = 0.0
    for each in range(10):
        inside = [(confidence, right) for place, confidence, right in bins if place == each]
        if inside:
            error += len(inside) / len(bins) * abs(np.mean([c for c, _ in inside]) - np.mean([r for _, r in inside]))
    values = {figure.name: value for name in FIGURES for figure, value, _ in METRICS[name].known(METRICS[name].totals(scored))}
    assert values == pytest.approx({"acc": np.mean(acc), "acc_norm": np.mean(acc_norm), "calibration_error": error}, abs=1e-9)


@pytest.fixture(scope="module")
def encoder() -> PromptEncoder:
    return PromptEncoder(tokenizer_of([], eos="<|end|>", chat_template=None), chat=False, max_length=64)


@pytest.mark.parametrize(
    ("prompt", "choice"), [("the cat sat", " on the mat"), ("the cat ", "sat"), ("the cat", "."), ("the cat \n", " sat")]
)
def test_tokens_of_a_choice_are_those_of_lm_evaluation_harness(encoder: PromptEncoder, prompt: str, choice: str) -> None:
    """`_encode_pair`, from its definition: white space at the end of the context goes to the continuation; both are encoded together."""
    context, continuation = prompt, choice
    blanks = len(context) - len(context.rstrip())
    if blanks:
        context, continuation = context[:-blanks], context[-blanks:] + continuation
    whole, head = (encoder._tokenizer(text)["input_ids"] for text in (context + continuation, context))

    tokens = encoder.continuation(prompt, choice)

    assert tokens.ids == whole
    assert [token for token, counts in zip(tokens.ids, tokens.counted, strict=True) if counts] == whole[len(head) :]


def test_a_choice_that_does_not_fit_is_refused(encoder: PromptEncoder) -> None:
    with pytest.raises(BadRow, match=r"engine\.maxLength 64 allows 63"):
        encoder.continuation("cat " * 80, " sat")
    with pytest.raises(BadRow, match="the prompt is empty"):
        encoder.continuation(" ", " sat")
