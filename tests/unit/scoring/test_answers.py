"""Answers cut out of outputs, several samples, and judges of answers, by the code that workers run; `load_jobspec` reads the tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.api import BadInput, load_jobspec
from tuneyard.metrics.pass_at import pass_at
from tuneyard.scoring import ScoreRequest, ScoreResult
from tuneyard.scoring.paired import compare

ROWS = [{"prompt": f"{n} * 1000", "answer": f"{n},000"} for n in range(1, 9)]


def says(n: int) -> str:
    """Row 3 gives no number, row 4 a wrong one."""
    return "I do not know" if n == 3 else f"It is {n + 1} * 1000, so ${n + 1 + (n == 4)}000.00."


def task_of(folder: Path, name: str, **score: Any) -> ScoreRequest:
    """A request whose task `load_jobspec` has read."""
    body = {"model": {"name": "m"}, "data": {"source": str(folder / "rows.jsonl"), "reference": "answer"}, "maxErrorFraction": 1.0, **score}
    spec = {"tasks": [{"name": name, "score": body}]}
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "answers"}, "spec": spec}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(job))
    task = load_jobspec(folder / f"{name}.yaml").spec.tasks[0].score
    assert task is not None
    return ScoreRequest(job="j", name=name, task=task, model_uri=str(folder / "m"), output=str(folder / name), scratch=str(folder))


@pytest.fixture
def scored(tmp_path: Path) -> Callable[..., tuple[ScoreResult, list[dict[str, Any]]]]:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "m").mkdir()

    def score(name: str = "judge", say: Callable[[int], Any] = says, **task: Any) -> tuple[ScoreResult, list[dict[str, Any]]]:
        result = answer_all(task_of(tmp_path, name, **task), say)
        return result, pq.read_table(result.output).to_pylist()

    return score


def test_a_number_is_cut_out_of_output_and_reference_and_missing_ones_are_wrong(scored: Any) -> None:
    result, rows = scored(metrics=["exact_match", "numeric", "token_f1", "rouge_l", "bleu"], answer="number")

    assert [row["extracted"] for row in rows] == ["1000", "2000", "3000", None, "6000", "6000", "7000", "8000"]
    assert [row["exact_match"] for row in rows] == [row["numeric"] for row in rows] == [1, 1, 1, 0, 0, 1, 1, 1]
    assert rows[3]["token_f1"] == rows[3]["rouge_l"] == 0.0
    assert rows[3]["error"] is None
    assert rows[0]["output"] == says(0)
    assert (result.unanswered, result.errors) == (1, 0)
    assert result.warnings(256) == ["no answer in 1 of 8 rows: score.answer finds none there, and they are scored as wrong"]
    assert result.metrics["exact_match"] == pytest.approx(6 / 8)
    assert {sample["row"]: sample.get("extracted") for sample in result.samples}[3] == ""
    assert json.loads((Path(result.output).parent / "metrics.json").read_text())["unanswered"] == 1


@pytest.mark.parametrize(
    ("answer", "text", "extracted"),
    [
        ({"last": r"so \$(\S+)\."}, "so $1. so $2.", "2"),
        ({"first": r"\$(\d+)"}, "so $1. so $2.", "1"),
        ({"json": "a.b"}, 'Here: {"a": {"b": [1, 2]}}', "[1,2]"),
        ("boxed", r"\boxed{x}", "x"),
        ("choice", "The answer is (B).", "B"),
    ],
)
def test_each_form_of_an_answer(scored: Any, answer: Any, text: str, extracted: str) -> None:
    result, rows = scored(say=lambda _: text, metrics=["exact_match", "json_valid"], answer=answer)

    assert {row["extracted"] for row in rows} == {extracted}
    assert result.metrics["json_valid"] == 0.0  # of the whole output


def test_an_empty_answer_never_equals_an_empty_reference(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "answer": ""}, {"prompt": "b", "answer": ""}])
    (tmp_path / "m").mkdir()

    result = answer_all(task_of(tmp_path, "t", metrics=["exact_match", "token_f1"], answer="number"), lambda n: "4" if n else "none")

    assert (result.metrics, result.unanswered) == ({"exact_match": 0.0, "token_f1": 0.0}, 1)


def test_case_punctuation_articles_and_blanks_are_ignored_where_asked(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "p", "answer": ["Paris", "the city of Paris"]}, {"prompt": "q", "answer": "1000"}])
    (tmp_path / "m").mkdir()
    say = ["City of Paris.", "1,000"].__getitem__

    strict = answer_all(task_of(tmp_path, "strict", metrics=["exact_match"]), say)
    lenient = answer_all(task_of(tmp_path, "lenient", metrics=["exact_match"], ignore=["case", "punctuation", "articles"]), say)

    assert (strict.metrics["exact_match"], lenient.metrics["exact_match"]) == (0.0, 1.0)


def test_numbers_may_be_off_by_the_tolerance(scored: Any) -> None:
    def near(n: int) -> str:
        return f"about {(n + 1) * 1000 + 10 * n}"

    shares = {
        name: scored(name, near, metrics=["numeric"], numeric=numeric)[0].metrics["numeric"]
        for name, numeric in {
            "absolute": {"tolerance": 30},
            "relative": {"relative": 0.008},
            "both": {"tolerance": 30, "relative": 0.008},
        }.items()
    }
    exact = scored("exact", near, metrics=["numeric"])[0].metrics["numeric"]

    assert (exact, shares) == (1 / 8, {"absolute": 4 / 8, "relative": 5 / 8, "both": 5 / 8})


def test_a_relative_tolerance_is_a_share_of_the_reference(scored: Any) -> None:
    """110 is off by 10 % of the reference 100, and 91 by 9 %: shares of the answer would be 9.1 and 9.9 %."""
    right = {
        answer: scored(f"of-{answer}", lambda n, share=answer: str((n + 1) * share * 10), metrics=["numeric"], numeric={"relative": 0.095})
        for answer in (110, 91)
    }
    assert {answer: result.metrics["numeric"] for answer, (result, _) in right.items()} == {110: 0.0, 91: 1.0}


def test_a_reference_without_a_number_is_an_error_of_its_row(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "p", "answer": "four"}, {"prompt": "q", "answer": 4}, {"prompt": "r", "answer": None}])
    (tmp_path / "m").mkdir()

    result = answer_all(task_of(tmp_path, "t", metrics=["numeric"]), lambda _: "4.0")

    rows = pq.read_table(result.output).to_pylist()
    assert rows[0]["error"] == "numeric cannot be computed: ValueError: no reference has a number: 'four'"
    assert [row["numeric"] for row in rows] == [None, 1.0, None]


def test_a_reference_may_be_a_truth_value_of_json(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "p", "answer": True}, {"prompt": "q", "answer": [False, None]}])
    (tmp_path / "m").mkdir()

    result = answer_all(task_of(tmp_path, "t", metrics=["exact_match"], answer={"json": "good"}), lambda _: 'So {"good": true}.')

    rows = pq.read_table(result.output).to_pylist()
    assert [row["exact_match"] for row in rows] == [1.0, None]
    assert rows[1]["error"] == "answer[1] is NoneType, not text"


def test_a_slow_pattern_is_an_error_of_two_rows_and_ends_the_task_at_the_third(scored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuneyard.metrics.answers.cut.LIMIT_S", 0.05)
    answer = {"last": r"(a|aa)+$"}

    result, rows = scored("two", lambda n: "a" * 60 + "!" if n < 2 else "aa", metrics=["exact_match"], answer=answer)
    with pytest.raises(BadInput, match=r"score\.answer: the pattern '\(a\|aa\)\+\$' takes longer than 0\.05 s"):
        scored("three", lambda n: "a" * 60 + "!" if n < 3 else "aa", metrics=["exact_match"], answer=answer)

    assert (result.errors, result.unanswered) == (2, 0)
    assert all("takes longer than" in row["error"] for row in rows[:2])


def test_own_metrics_get_the_answer(scored: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def digits(output, references, row):\n    return len(output)\n")

    _, rows = scored(ownMetrics=["mine:digits"], metricsDir=str(tmp_path), answer="number")

    assert [row["digits"] for row in rows] == [4, 4, 4, 0, 4, 4, 4, 4]


def test_models_are_compared_by_answers_that_were_cut_out_alike(scored: Any) -> None:
    first, _ = scored("first", metrics=["exact_match", "json_valid"], answer="number")
    scored("second", lambda n: f"{n + 1}000", metrics=["exact_match", "json_valid"], answer="number")
    scored("whole", metrics=["exact_match", "json_valid"])
    folder = Path(first.output).parent.parent

    alike = compare(str(folder / "second"), str(folder / "first"), names=("second", "first"))
    other = compare(str(folder / "whole"), str(folder / "first"), names=("whole", "first"))

    assert {figure.figure: figure.difference for figure in alike.figures} == {"exact_match": pytest.approx(0.25), "json_valid": 1.0}
    assert [figure.figure for figure in other.figures] == ["json_valid"]
    scored("third", metrics=["exact_match"], ignore=["case"])
    with pytest.raises(BadInput, match=r"exact_match by different score\.ignore and score\.answer"):
        compare(str(folder / "third"), str(folder / "first"), names=("third", "first"))


# --- several samples --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "c", "k", "value"), [(5, 2, 1, 0.4), (5, 2, 3, 1 - 1 / 10), (5, 0, 5, 0.0), (5, 1, 5, 1.0), (200, 10, 10, 0.4085)]
)
def test_pass_at_k_is_the_unbiased_estimate(n: int, c: int, k: int, value: float) -> None:
    product = 1.0  # the numerically stable form in the paper of Codex
    for each in range(n - c + 1, n + 1):
        product *= 1.0 - k / each

    assert pass_at(n, c, k) == pytest.approx(1.0 if n - c < k else 1.0 - product)
    assert pass_at(n, c, k) == pytest.approx(value, abs=1e-4)


def test_samples_of_a_row_are_answers_of_their_own(scored: Any) -> None:
    counts: dict[int, int] = {}

    def third_time(n: int) -> str:
        counts[n] = counts.get(n, 0) + 1
        return f"try {counts[n]}: {n + 1}000" if counts[n] == 3 and n < 4 else "no idea"

    generation = {"samples": 4, "temperature": 1.0}
    result, rows = scored(say=third_time, metrics=["pass_at_k", "exact_match"], generation=generation, passAt={"k": 2}, answer="number")

    assert rows[0]["samples"] == ["no idea", "no idea", "try 3: 1000", "no idea"]
    assert [row["pass_at_k"] for row in rows] == [0.5] * 4 + [0.0] * 4
    assert (rows[0]["output"], rows[0]["exact_match"], rows[0]["output_tokens"]) == ("no idea", 0.0, 4)
    assert result.metrics["pass_at_k"] == pytest.approx(0.25)


# --- judges -----------------------------------------------------------------------------------------------------------------------


def test_a_judge_sees_the_answer_and_gives_the_lowest_score_where_there_is_none(tmp_path: Path) -> None:
    texts = ["so $4 it is", "nothing", "$5"]
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "q", "output": text, "answer": "the $4"} for text in texts])
    (tmp_path / "m").mkdir()
    seen: list[str] = []

    result = answer_all(task_of(tmp_path, "j", judge={"rubric": "r"}, answer="number"), lambda _: "Score: 5", seen=seen)

    rows = pq.read_table(result.output).to_pylist()
    assert [row["judge"] for row in rows] == [5.0, 1.0, 5.0]
    assert (result.unanswered, result.errors) == (1, 0)
    assert [row["extracted"] for row in rows] == ["4", None, "5"]
    assert all("<answer>\n4\n</answer>" in prompt or "<answer>\n5\n</answer>" in prompt for prompt in seen)
    assert all("<reference>\n4\n</reference>" in prompt for prompt in seen)


def test_of_two_texts_one_with_an_answer_wins_without_a_judge(tmp_path: Path) -> None:
    for name, texts in {"rows": ["4", "no", "no", "4"], "other": ["no", "5", "none", "4"]}.items():
        write_rows(tmp_path / f"{name}.jsonl", [{"prompt": f"q{n}", "output": text} for n, text in enumerate(texts)])
    (tmp_path / "m").mkdir()
    judge = {"rubric": "r", "against": {"source": str(tmp_path / "other.jsonl")}}
    seen: list[str] = []

    result = answer_all(
        task_of(tmp_path, "j", judge=judge, answer="number", data={"source": str(tmp_path / "rows.jsonl")}), lambda _: "A", seen=seen
    )

    assert [row["win_rate"] for row in pq.read_table(result.output).to_pylist()] == [1.0, 0.0, 0.5, 0.5]
    assert (seen, result.unanswered) == ([], 3)


# --- refusals ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "words"),
    [
        ({"answer": "box"}, "answer: expected boxed, number, choice or a group"),
        ({"answer": {"last": "("}}, "answer.last: '(' is no regular expression: missing )"),
        ({"answer": {"last": "a", "first": "b"}}, "give exactly one of first, last and json"),
        ({"answer": {"json": "a..b"}}, "answer.json: 'a..b' is no path of JSON"),
        ({"answer": {"lst": "a"}}, "did you mean last?"),
        ({"ignore": ["case"]}, "ignore: no metric uses it: add exact_match to metrics"),
        ({"ignore": ["cases"], "metrics": ["exact_match"]}, "did you mean case?"),
        ({"bleu": {"tokenize": "zho"}, "metrics": ["bleu"]}, "did you mean zh?"),
        ({"bleu": {"tokenize": "zh"}}, "bleu: no metric uses it"),
        ({"numeric": {"tolerance": -1}, "metrics": ["numeric"]}, "numeric.tolerance: must be at least 0"),
        ({"metrics": ["pass_at_k"]}, "passAt: pass_at_k needs the number of samples"),
        ({"metrics": ["pass_at_k"], "passAt": {"k": 3}}, "passAt.k: passAt.k is 3, above generation.samples 1"),
        ({"generation": {"samples": 3}, "metrics": ["exact_match"]}, "at temperature 0 all samples are the same"),
        ({"generation": {"samples": 3, "temperature": 1}, "metrics": ["exact_match"]}, "only pass_at_k reads more than one sample"),
        ({"metrics": ["acc"]}, "choices: give choices.column or choices.texts"),
        ({"choices": {"texts": ["a", "b"], "column": "c"}}, "give exactly one of texts and column"),
        ({"choices": {"texts": ["yes", " yes"]}}, "choices.texts[1]: two choices are 'yes'"),
        ({"choices": {"texts": ["yes", " "]}}, "choices.texts[1]: a choice is empty"),
        ({"choices": {"texts": ["a", "b"]}, "metrics": ["acc", "bleu"]}, "the model writes nothing: leave bleu out"),
        ({"choices": {"texts": ["a", "b"]}, "answer": "number"}, "the model writes nothing: leave answer out"),
    ],
)
def test_what_cannot_work_is_refused_in_words(tmp_path: Path, score: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        task_of(tmp_path, "t", **score)

    assert words in str(refused.value)


def test_a_resume_with_another_answer_is_refused(scored: Any) -> None:
    scored(metrics=["exact_match"], answer="number")

    with pytest.raises(BadInput, match=r"answer was number, is boxed"):
        scored(metrics=["exact_match"], answer="boxed")


def test_chinese_chooses_its_tokenizer_and_the_report_says_so(tmp_path: Path) -> None:
    text = "今天天气很好，我们去公园散步吧。"
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "p", "answer": text}] * 3)
    (tmp_path / "m").mkdir()

    result = answer_all(task_of(tmp_path, "t", metrics=["bleu", "rouge_l"]), lambda _: text[3:])

    assert result.details["bleu"]["tokenize"] == "zh"
    assert result.warnings(256) == [
        "BLEU is by the tokenizer zh: 100% of the letters in the references are of scripts without blanks between words"
    ]
    assert result.metrics["bleu"] > 50
    assert 0.7 < result.metrics["rouge_l"] < 1


def test_a_tokenizer_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = request(tmp_path, "t", write_rows(tmp_path / "rows.jsonl", ROWS), ["bleu"], bleu={"tokenize": "flores200"})

    with pytest.raises(BadInput, match=r"bleu\.tokenize flores200 needs"):
        answer_all(asked, says)
