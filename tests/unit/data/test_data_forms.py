"""Rows of exporters are read by their forms, files of people as they are; each through `inspect`, as a user looks at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.real_exports import GROUPS
from benchmarks.real_exports.case import Case
from benchmarks.real_files import RIGHT, verdict_of

from tuneyard.api import BadInput, ScoreData, load_jobspec
from tuneyard.cli import main
from tuneyard.data import ScoreRows, inspect
from tuneyard.data.forms import FORMS
from tuneyard.data.forms.page import NAME, page

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {{name: small}}
spec:
  tasks:
  - name: train
    train: {{model: {{name: tiny}}, data: {{source: {source}, {more}}}}}
    resources: {{sku: [cpu]}}
"""


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("case", [case for cases in GROUPS.values() for case in cases], ids=lambda case: case.kind)
def test_files_are_read_rightly_or_refused_with_the_cause(case: Case, tmp_path: Path) -> None:
    verdict, said = verdict_of(case, tmp_path)
    assert verdict in RIGHT, said


@pytest.mark.parametrize("name", FORMS)
def test_the_example_of_each_form_has_this_form(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    found = inspect(str(write(tmp_path / "a.jsonl", form.example)))
    if form.refusal is not None:
        assert form.refusal[0] in found.why
        assert found.advice == form.refusal[1]
    else:
        assert found.why.startswith(f"form: {name}, from ")


def test_the_page_of_forms_is_fresh() -> None:
    assert (REFERENCE / NAME).read_text() == page(), "run `make docs` and commit the result"


def test_rows_of_another_form_in_the_middle_are_bad_rows_that_name_it(tmp_path: Path) -> None:
    other = {"messages": CHAT}
    found = inspect(str(write(tmp_path / "a.jsonl", *[FORMS["Gemini contents"].example] * 120, other)))
    assert (found.samples, found.bad) == (120, 1)
    assert "not of the form Gemini contents" in found.bad_examples[0]
    assert "columns of this row: messages" in found.bad_examples[0]


def test_a_form_is_not_used_where_columns_are_given(tmp_path: Path) -> None:
    row = {"question": "2+2?", "choices": ["3", "4"], "answer": "4"}
    found = inspect(str(write(tmp_path / "a.jsonl", row)), columns={"prompt": "question", "completion": "answer"})
    assert "".join(piece.text for piece in found.shown[0]) == "2+2?4"


def test_values_of_unexpected_types_are_bad_rows_of_their_form(tmp_path: Path) -> None:
    rows = [form.example for form in FORMS.values() if form.refusal is None]
    odd: tuple[Any, ...] = (None, 5, "x", [], {}, [None], {"a": None})
    for form in (form for form in FORMS.values() if form.refusal is None):
        changed = [{**form.example, name: value} for name in form.example for value in odd]
        found = inspect(str(write(tmp_path / "a.jsonl", *[form.example] * 100, *changed, *rows)))
        assert found.format == form.format, form.name
        assert found.samples + found.bad + found.left_out == 100 + len(changed) + len(rows)


def test_a_column_that_comes_late_and_changes_a_row_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *[{"messages": CHAT}] * 120, {"messages": CHAT, "system": "pirate"})
    found = inspect(str(path))
    assert found.bad_examples == [
        f'{path}:121: system ("pirate") has a value here and none in the first rows, by which the format was found'
    ]
    assert found.advice == "say that it counts: data.columns: {system: system}"
    assert inspect(str(path), columns={"system": "system"}).bad == 0


def test_unused_columns_are_named_once_by_each_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.jsonl", *({"question": f"q{i}", "schema": f"t{i}", "answer": f"a{i}", "kind": "x"} for i in range(30)))
    (tmp_path / "job.yaml").write_text(JOB.format(source="a.jsonl", more="maxLength: 64"))
    note = 'column schema is not used (schema: "t0")'
    for command in (["data", "inspect", str(tmp_path / "a.jsonl")], ["validate", str(tmp_path / "job.yaml")]):
        assert main(command) == 0
        shown = capsys.readouterr()
        assert " ".join((shown.out + shown.err).split()).count(note) == 1
    assert main(["init", "--data", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "new.yaml")]) == 0
    assert note in capsys.readouterr().err


def test_of_several_answers_those_that_are_not_used_are_named(tmp_path: Path) -> None:
    choices = ({"message": {"role": "assistant", "content": f"{n}"}, "finish_reason": ("stop", "length")[n % 2]} for n in range(12))
    rows = ({"messages": [{"role": "user", "content": "q"}], "choices": [next(choices), next(choices)]} for _ in range(6))
    [note] = [note for note in inspect(str(write(tmp_path / "a.jsonl", *rows))).notes if "not used" in note]
    assert "choices[1].message.content" in note


def test_ten_thousand_columns_are_counted_in_words(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{i}", "completion": f"a{i}"} | {f"c{n}": n + i for n in range(10_000)} for i in range(3)]
    [note] = inspect(str(write(tmp_path / "a.jsonl", *rows))).notes
    assert note.startswith("columns c0, c1, c2, c3, c4, c5, c6, c7 and 9,992 more are not used (c0: 0, c1: 1, c2: 2)")


def test_speakers_get_a_role_by_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = [{"role": "customer", "content": "q"}, {"role": "Clerk", "content": "a"}]
    path = write(tmp_path / "a.jsonl", *[{"messages": turns}] * 3)
    refused = inspect(str(path))
    assert refused.bad_examples[0].endswith("no assistant turn: nothing to learn from; the turns are by customer, clerk")
    assert refused.advice == "say who they are: data.roles: {customer: user, clerk: assistant}"
    roles = "{customer: user, Clerk: assistant}"
    (tmp_path / "job.yaml").write_text(JOB.format(source="a.jsonl", more=f"roles: {roles}"))
    spec = load_jobspec(tmp_path / "job.yaml").spec.task("train").train
    assert spec is not None
    assert spec.data.roles == {"customer": "user", "Clerk": "assistant"}
    assert main(["validate", str(tmp_path / "job.yaml")]) == 0
    assert capsys.readouterr().err == ""
    assert main(["data", "inspect", str(path), "--roles", "customer=user,Clerk=assistant", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["bad"] == 0
    (tmp_path / "job.yaml").write_text(JOB.format(source="a.jsonl", more="roles: {customer: boss}"))
    assert main(["validate", str(tmp_path / "job.yaml")]) == 2


def test_a_speaker_without_a_usual_role_is_named_where_the_chat_can_be_read(tmp_path: Path) -> None:
    turns = [{"role": "customer", "content": "q"}, {"role": "assistant", "content": "a"}]
    [note] = inspect(str(write(tmp_path / "a.jsonl", {"messages": turns}))).notes
    assert note == "speakers customer have no usual role; data.roles gives them one, such as {customer: user}"


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("body.mesages", "body has no part mesages: its parts are messages, model"),
        ("body.messages.content", "body.messages is a list of 2 objects"),
        ("body.messages[5].content", "body.messages has 2 items"),
        ("none.messages", "none is null"),
        ("body.", "body. is not a path"),
        ("body.messages[x]", r"body.messages\[x\] is not a path"),
    ],
)
def test_a_path_without_a_value_says_where_it_ends(column: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"body": {"messages": CHAT, "model": "m"}, "none": None})
    with pytest.raises(BadInput, match=said):
        inspect(str(path), columns={"messages": column})


def test_rows_in_which_a_path_ends_early_are_bad_rows(tmp_path: Path) -> None:
    rows = [{"answers": {"text": texts}, "question": "q"} for texts in (["a"], [], None)]
    found = inspect(
        str(write(tmp_path / "a.jsonl", *rows, {"question": "q"})), columns={"prompt": "question", "completion": "answers.text[0]"}
    )
    assert found.samples == 1
    assert [example.partition(": ")[2] for example in found.bad_examples] == [
        "answers.text[0] is missing: answers.text has 0 items",
        "answers.text[0] is missing: answers.text is null",
        "answers.text[0] is missing: no column answers",
    ]


def test_half_a_struct_of_lists_is_a_bad_row(tmp_path: Path) -> None:
    halves = {"role": ["user", "assistant"], "content": ["hi"]}
    rows = [{"messages": {"role": ["user", "assistant"], "content": ["hi", "hello"]}}, {"messages": halves}]
    found = inspect(str(write(tmp_path / "a.jsonl", *rows)))
    assert found.samples == 1
    assert "messages is an object of lists that are no turns (role 2, content 1 items)" in found.bad_examples[0]


def test_whole_floats_stay_floats_where_a_column_has_no_null_or_other_numbers(tmp_path: Path) -> None:
    def completions(*answers: Any) -> list[str]:
        found = inspect(str(write(tmp_path / "a.jsonl", *({"prompt": "q", "completion": answer} for answer in answers))))
        return [pieces[1].text for pieces in found.shown]

    assert completions(4.0, None) == ["4"]
    assert completions(4.0, 5.0) == ["4.0", "5.0"]
    assert completions(4.0, None, 0.5) == ["4.0", "0.5"]
    assert completions(4.0, *[5.0] * 300, None)[0] == "4"


def test_score_tasks_read_forms_paths_and_whole_numbers(tmp_path: Path) -> None:
    def rows(*values: Any, **data: Any) -> list[Any]:
        return ScoreRows.open(ScoreData(source=str(write(tmp_path / "a.jsonl", *values)), **data), cache_dir=tmp_path).read(0, 9)

    [row] = rows(FORMS["SQuAD"].example, prompt="question", reference="answers.text")
    assert (row["prompt"], row["references"]) == ("2+2?", ("4",))
    [row] = rows(FORMS["ChatGPT account export"].example, reference="completion")
    assert ([turn["content"] for turn in row["prompt"]], row["references"]) == (["2+2?"], ("4",))
    row, _ = rows({"prompt": "q", "answer": 4.0}, {"prompt": "q", "answer": None}, reference="answer")
    assert row["references"] == ("4",)
    [row] = rows({"body": {"messages": CHAT[:1]}, "who": "be brief"}, columns={"prompt": "body.messages", "system": "who"})
    assert (row["prompt"], row["system"]) == (CHAT[:1], "be brief")
    with pytest.raises(BadInput, match=r"body has no part mesages"):
        rows({"body": {"messages": CHAT}}, prompt="body.mesages")
    with pytest.raises(BadInput, match=r"data\.columns: completion has no part in a score task"):
        rows({"prompt": "q"}, columns={"completion": "prompt"})


def test_the_prompt_of_a_score_task_has_the_passage_that_training_shows(tmp_path: Path) -> None:
    row = {"context": "Anna has 1 apple.", "question": "How many?", "answers": {"text": ["1"], "answer_start": [9]}}
    data = ScoreData(source=str(write(tmp_path / "a.jsonl", row)), prompt="prompt", reference="completion")

    [found] = ScoreRows.open(data, cache_dir=tmp_path).read(0, 1)

    assert (found["prompt"], found["references"]) == ("How many?\n\nAnna has 1 apple.", ("1",))


@pytest.mark.parametrize(
    ("row", "letter"),
    [
        ({"question": "What is 1?", "choices": ["1", "2", "3", "4"], "answer": "1"}, "A"),
        ({"question": "What is 0?", "choices": ["1", "2", "3", "0"], "answer": 0}, "A"),
        ({"question": "Which?", "choices": ["B", "A", "C"], "answer": "A"}, "B"),
        ({"goal": "g", "sol1": "a", "sol2": "b", "label": 1}, "B"),
        ({"goal": "g", "sol1": "a", "sol2": "b", "label": 0}, "A"),
        ({"premise": "It rained.", "choice1": "wet", "choice2": "dry", "question": "effect", "label": 0}, "A"),
        ({"sentence": "x _", "option1": "a", "option2": "b", "answer": "2"}, "B"),
        ({"question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"}, "B"),
    ],
)
def test_the_right_choice_is_the_one_that_the_row_means(row: dict[str, Any], letter: str) -> None:
    assert FORMS["a question with choices"].shaped(row)["completion"] == f" {letter}"


@pytest.mark.parametrize("labels", [(1, 0), ("1", "0"), (1.0, 0.0), (True, False), ("True", "False")])
def test_answers_labelled_as_bad_are_left_out(labels: tuple[Any, Any], tmp_path: Path) -> None:
    rows = [{"prompt": f"q{n}", "completion": f"a{n}", "label": labels[n % 2]} for n in range(10)]
    columns = {"prompt": "prompt", "completion": "completion", "label": "label"}

    found = inspect(str(write(tmp_path / "a.jsonl", *rows)), columns=columns)

    assert (found.samples, found.left_out) == (5, 5)


def test_a_row_that_its_form_cannot_read_is_an_error_of_that_row_alone(tmp_path: Path) -> None:
    good = FORMS["a question with choices"].example
    path = write(tmp_path / "a.jsonl", {**good, "answer": 7}, good, good)
    rows = ScoreRows.open(ScoreData(source=str(path), reference="completion"), cache_dir=tmp_path).read(0, 3)
    assert [row["references"] for row in rows] == [(), (" B",), (" B",)]
    assert rows[0]["error"] == "answer is 7, none of the 2 choices (labels 0, 1)"


def test_parts_of_messages_that_no_sample_uses_are_named(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": "hello", "citations": ["a.pdf"], "refusal": None, "weight": 1}
    [note] = inspect(str(write(tmp_path / "a.jsonl", {"messages": [CHAT[0], said]}))).notes
    assert note == 'in messages, citations is not used (citations: ["a.pdf"])'


def test_speakers_of_data_roles_are_compared_without_case(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": name, "content": "hi"}, CHAT[1]]} for name in ("Customer", "customer", "CUSTOMER")]
    found = inspect(str(write(tmp_path / "a.jsonl", *rows)), roles={"Customer": "user"})
    assert (found.samples, found.notes) == (3, [])


def test_the_input_of_an_instruction_is_part_of_the_prompt_of_its_two_answers(tmp_path: Path) -> None:
    rows = [
        {"instruction": f"Add {n}", "input": "" if n % 2 else f"4 and {n}", "output_1": "a", "output_2": "b", "preference": 1}
        for n in (0, 1)
    ]
    found = inspect(str(write(tmp_path / "a.jsonl", *rows)))
    assert ["".join(piece.text for piece in sample) for sample in found.shown] == [
        "prompt: Add 0\n\n4 and 0\nchosen: a\nrejected: b",
        "prompt: Add 1\nchosen: a\nrejected: b",
    ]
