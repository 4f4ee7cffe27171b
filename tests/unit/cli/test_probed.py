"""What the data of a job are in tokens is known before it starts: `validate`, `plan`, `run` and `init` say what cannot be trained on."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import tiny_config, write_tokenizer, write_weights

from tuneyard.api import BadInput, JobSpec, load_documents
from tuneyard.cli import main
from tuneyard.cli.checks import check_shipped_data
from tuneyard.data import overlap, probing

JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: small}
spec:
  tasks:
  - name: train
    train:
      model: {name: ./model}
      data: DATA
      steps: 3
    resources: {sku: [cpu]}
"""
SCORE = """\
  - name: judge
    score:
      model: {from: train}
      data: {source: held.jsonl, prompt: question, reference: answer}
      metrics: [exact_match]
    resources: {sku: [cpu]}
"""
PAIRS = [{"question": f"the cat {n} sat on a mat and saw one dog", "answer": f"yes {n}"} for n in range(60)]
STRANGE = [{"messages": [{"role": "client", "content": f"hi {n}"}, {"role": "clerk", "content": "yes"}]} for n in range(50)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    write_tokenizer(tmp_path / "model")
    write_weights(tmp_path / "model")
    tiny_config(max_position_embeddings=4096).save_pretrained(tmp_path / "model")
    return tmp_path


def write(folder: Path, rows: Sequence[Any], data: str, more: str = "", *, held: Sequence[Any] = ()) -> None:
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "held.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in held))
    (folder / "job.yaml").write_text(JOB.replace("DATA", data) + more)


@pytest.mark.parametrize(
    ("rows", "data", "place", "cause", "step"),
    [
        (STRANGE, "{source: rows.jsonl, roles: {client: user}}", "data", "50 of 50 rows are bad", "{client: user, clerk: assistant}"),
        (
            PAIRS,
            "{source: rows.jsonl, chat: true, maxLength: 8}",
            "spec.tasks[0].train.data.maxLength",
            "maxLength 8 leaves nothing to learn of all samples",
            "set data.maxLength: 64",
        ),
    ],
)
def test_a_job_that_cannot_train_is_told_before_it_starts(
    rows: Sequence[Any], data: str, place: str, cause: str, step: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, rows, data)
    for command in (["validate", "job.yaml"], ["plan", "job.yaml"]):
        assert main(command) == 0
        said = capsys.readouterr().err
        if command[0] == "validate" or rows is PAIRS:
            assert place in said
            assert cause in said
            assert step in said
    before = {*sys.modules}
    assert main(["run", "job.yaml", "--out", "out"]) == 2
    said = capsys.readouterr().err
    assert cause in said
    assert step in said
    assert not (here / "out" / "report.json").exists()
    assert "ray" not in {*sys.modules} - before, "refused before Ray is even imported"
    [document] = load_documents(here / "job.yaml")
    assert isinstance(document.resource, JobSpec)
    with pytest.raises(BadInput, match="maxLength 8 leaves" if rows is PAIRS else "rows are bad"):
        check_shipped_data(document.resource, here, document.complaint)


def test_pairs_without_the_template_of_their_model_are_warned_of(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, PAIRS, "{source: rows.jsonl}")
    for command in ("validate", "plan"):
        assert main([command, "job.yaml"]) == 0
        said = capsys.readouterr().err
        assert 'spec.tasks[0].train.data.chat: prompts run into their answers ("…' in said
        assert "set data.chat: true" in said
    for data in ("{source: rows.jsonl, chat: true}", "{source: rows.jsonl, chat: false}", "{source: rows.jsonl, template: response}"):
        write(here, PAIRS, data)
        assert main(["validate", "job.yaml"]) == 0
        assert capsys.readouterr().err == ""


def test_parts_of_a_mixture_and_validation_are_looked_at(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, PAIRS, "{mix: [{source: rows.jsonl, chat: true}, {source: held.jsonl}], validation: {source: held.jsonl}}", held=PAIRS[:9])
    assert main(["validate", "job.yaml"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("spec.")[2].partition(": ")[0] for line in said] == [
        "tasks[0].train.data.mix[1].chat",
        "tasks[0].train.data.chat",
    ]


def test_prompts_that_are_trained_on_and_scored_are_counted_once(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [PAIRS[3], {**PAIRS[5], "question": PAIRS[5]["question"].upper() + "!"}, {"question": "another?", "answer": "no"}]
    write(here, PAIRS, "{source: rows.jsonl, template: response}", SCORE, held=held)
    assert main(["plan", "job.yaml"]) in (0, 1)
    said = capsys.readouterr().err
    assert "spec.tasks[1].score.data: 2 of 3 prompts stand in the training data of train too" in said
    assert "(1 word for word, 1 but for case, blanks and punctuation), such as rows 0, 1" in said
    counted = overlap._counted
    monkeypatch.setattr(overlap, "_counted", lambda *_: pytest.fail("it counted again"))
    assert main(["plan", "job.yaml"]) in (0, 1)
    assert "2 of 3 prompts stand in the training data" in capsys.readouterr().err
    monkeypatch.setattr(overlap, "_counted", counted)
    for rows, scored, found in ((PAIRS, held[2:], ""), (PAIRS[4:], held, "1 of 3 prompts stand in")):
        write(here, rows, "{source: rows.jsonl, template: response}", SCORE, held=scored)
        assert main(["plan", "job.yaml"]) in (0, 1)
        said = capsys.readouterr().err
        assert found in said
        assert ("prompts stand in" in said) == bool(found)


def test_data_that_are_not_looked_at_are_told_with_the_reason(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "REMOTE_S", 240.0)  # the test machine may be busy
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    write(here, PAIRS, "{mix: [{source: rows.jsonl, chat: true}, {source: hf://a/b}], validation: {source: s3://lost/b.jsonl}}")
    assert main(["plan", "job.yaml"]) in (0, 1)
    said = capsys.readouterr().err
    assert "train: rows are not rendered before the job runs: hf://a/b is downloaded when the task starts" in said
    assert "train: rows are not rendered before the job runs: s3://lost/b.jsonl: could not be read" in said
    (here / "model" / "tokenizer.json").unlink()
    (here / "model" / "tokenizer_config.json").unlink(missing_ok=True)
    write(here, PAIRS, "{source: s3://lost/b.jsonl}")
    assert main(["plan", "job.yaml"]) in (0, 1)
    assert "rows are not rendered before the job runs: the tokenizer is not on this machine" in capsys.readouterr().err


def test_init_writes_no_more_tokens_than_the_model_has_positions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_config(max_position_embeddings=256).save_pretrained(here / "model")
    write(here, PAIRS, "{source: rows.jsonl}")
    assert main(["init", "--data", "rows.jsonl", "--model", "model", "--force"]) == 0
    assert "maxLength: 256   # tokens per row: the positions of the model" in (here / "job.yaml").read_text()
    assert main(["validate", "job.yaml"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_init_takes_lengths_from_the_tokenizer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = " ".join(["the cat sat on a mat"] * 200)
    (here / "rows.jsonl").write_text("".join(json.dumps({"question": f"{n} {long}", "answer": "yes"}) + "\n" for n in range(20)))
    assert main(["init", "--data", "rows.jsonl", "--model", "model"]) == 0
    assert "99 % of samples have at most" in (here / "job.yaml").read_text()
    assert "tokens" in (here / "job.yaml").read_text().partition("99 % of samples")[2].splitlines()[0]
    assert "warning" not in capsys.readouterr().err
    assert main(["validate", "job.yaml"]) == 0
    assert capsys.readouterr().err == ""
