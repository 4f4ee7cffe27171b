"""A resume of a changed task, through `python -m tuneyard.training JOB --resume`: what is refused, what is taken and said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.checkpoints import checkpoint, entries_of, saves_in_turn, stop_after
from tests.integration.training.conftest import Material

from tuneyard.training.command import main


@dataclass(frozen=True)
class Attempt:
    code: int
    out: str
    err: str
    folder: Path

    @property
    def rates(self) -> list[str]:
        return [line.split("  lr ")[1].split()[0] for line in self.out.splitlines() if line.startswith("step ") and "  lr " in line]

    @property
    def warnings(self) -> list[str]:
        return [line.removeprefix("warning: ") for line in self.out.splitlines() if line.startswith("warning: ")]


Fields = dict[str, Any]
Run = Callable[..., Attempt]


def job(folder: Path, material: Material, data: Fields, **train: Any) -> Path:
    """The file of a job whose data lie beside it."""
    fields: Fields = {
        "model": {"name": str(material.model)},
        "data": {"source": "chats.jsonl", "maxLength": 128, **data},
        "optimizer": {"learningRate": 1e-3, "warmup": 0, "schedule": "linear"},
        "batch": {"global": 8, "micro": 4},
        "strategy": {"zero": 0, "precision": "fp32"},
        "checkpoint": {"everySteps": 2},
        "steps": 6,
        **train,
    }
    task = {"name": "train", "train": fields}
    path = folder / "job.yaml"
    path.write_text(
        yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}, "spec": {"tasks": [task]}})
    )
    return path


@dataclass(frozen=True)
class Stopped:
    """A folder with job, data and an output that ends at step 4. Tests take copies."""

    folder: Path
    material: Material
    data: Fields
    train: Fields


def stopped_run(folder: Path, material: Material, data: Fields | None = None, **train: Any) -> Stopped:
    shutil.copy(material.chats, folder / "chats.jsonl")
    with saves_in_turn():
        assert main([str(job(folder, material, data or {}, **train)), "--task", "train", "--out", str(folder / "out")]) == 0
    stop_after(4, folder / "out" / "train")
    return Stopped(folder, material, data or {}, train)


@pytest.fixture(scope="module")
def plain(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return stopped_run(tmp_path_factory.mktemp("plain"), material)


@pytest.fixture(scope="module")
def lora(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return stopped_run(tmp_path_factory.mktemp("lora"), material, method={"lora": {"rank": 4}})


@pytest.fixture
def resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(before: Stopped, data: Fields | None = None, rows: Callable[[list[str]], list[str]] | None = None, **train: Any) -> Attempt:
        folder = tmp_path / "copy"
        shutil.copytree(before.folder, folder)
        if rows is not None:
            lines = (folder / "chats.jsonl").read_text().splitlines()
            (folder / "chats.jsonl").write_text("".join(f"{line}\n" for line in rows(lines)))
        file = job(folder, before.material, {**before.data, **(data or {})}, **{**before.train, **train})
        capsys.readouterr()
        code = main([str(file), "--task", "train", "--out", str(folder / "out"), "--resume"])
        out, err = capsys.readouterr()
        return Attempt(code, out, err, folder)

    return run


def other(lines: list[str]) -> list[str]:
    """As many rows, all of them others."""
    turns = [[{"role": "user", "content": f"what is {i}"}, {"role": "assistant", "content": f"it is {i}"}] for i in range(len(lines))]
    return [json.dumps({"messages": each}) for each in turns]


_SHORT = "{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}"
THEN = "when the checkpoint was written"
ROWS: dict[str, tuple[Any, str, str]] = {
    "other rows": (other, f"has other samples than {THEN} (64 then, 64 now)", "restore the data"),
    "another order": (lambda lines: lines[::-1], f"has the same 64 samples as {THEN}, in another order", "restore the order"),
    "a row more": (lambda lines: [*lines, lines[0]], f"has the same 64 samples as {THEN}, and 1 more after them", "data.limit: 64"),
    "a row less": (lambda lines: lines[1:], f"has other samples than {THEN} (64 then, 63 now)", "restore the data"),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("pack", [False, True], ids=["whole", "packed"])
def test_other_rows_are_refused_by_what_has_changed(case: str, pack: bool, plain: Stopped, packed: Stopped, resumed: Run) -> None:
    change, words, step = ROWS[case]

    attempt = resumed(packed if pack else plain, rows=change)

    assert attempt.code == 2
    assert f"chats.jsonl {words}" in attempt.err
    assert step in attempt.err
    assert checkpoint(attempt.folder / "out" / "train", 4).joinpath("manifest.json").is_file(), "nothing is touched"


@pytest.fixture(scope="module")
def packed(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return stopped_run(tmp_path_factory.mktemp("packed"), material, {"pack": True})


def test_appended_rows_can_be_left_out_by_the_limit_that_the_refusal_names(plain: Stopped, resumed: Run) -> None:
    attempt = resumed(plain, {"limit": 64}, rows=lambda lines: [*lines, *other(lines)])

    assert attempt.code == 0, attempt.err
    assert attempt.warnings == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"lossOn": "all"}, "they give other tokens: data.lossOn changes from auto to all"),
        ({"maxLength": 16}, "data.maxLength changes from 128 to 16"),
        ({"pack": True}, "packed into other rows (data.pack changes from false to true)"),
        (
            {"chatTemplate": "{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}"},
            "they give other tokens: data.chatTemplate changes",
        ),
        ({"shuffle": False}, "was made by another task: data.shuffle changes from true to false"),
        ({"validationFraction": 0.2}, "data.validationFraction changes from 0 to 0.2"),
        (
            {"streaming": True, "workers": 0},
            "prepared whole when the checkpoint was written, and is streamed now (data.streaming changes from unset to true",
        ),
    ],
)
def test_settings_that_change_the_rows_are_named(data: Fields, words: str, plain: Stopped, resumed: Run) -> None:
    attempt = resumed(plain, data)

    assert attempt.code == 2
    assert words in attempt.err


def test_a_template_file_with_another_text_is_refused(material: Material, tmp_path_factory: pytest.TempPathFactory, resumed: Run) -> None:
    folder = tmp_path_factory.mktemp("template")
    template = folder / "chat.jinja"
    template.write_text("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}")
    before = stopped_run(folder, material, {"chatTemplate": str(template)})
    template.write_text("{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }}<|end|>{% endfor %}")

    attempt = resumed(before)

    assert attempt.code == 2
    assert "they give other tokens: the text of data.chatTemplate is another" in attempt.err


def test_data_that_moved_are_the_same(plain: Stopped, resumed: Run) -> None:
    moved = plain.folder / "moved.jsonl"
    shutil.copy(plain.folder / "chats.jsonl", moved)

    attempt = resumed(plain, {"source": str(moved), "format": "chat", "lossOn": "assistant"})

    assert attempt.code == 0, attempt.err
    assert attempt.warnings == []


TAKEN: dict[str, tuple[Fields, str, list[str]]] = {
    "rate": (
        {"optimizer": {"learningRate": 1e-2, "warmup": 0, "schedule": "linear"}},
        "optimizer.learningRate changes from 0.001 to 0.01",
        ["3.33e-03", "1.67e-03"],
    ),
    "schedule": (
        {"optimizer": {"learningRate": 1e-3, "warmup": 0, "schedule": "constant"}},
        "optimizer.schedule changes from linear to constant",
        ["1.00e-03", "1.00e-03"],
    ),
    "warm-up": (
        {"optimizer": {"learningRate": 1e-3, "warmup": 5, "schedule": "linear"}},
        "optimizer.warmup changes from 0 to 5",
        ["8.00e-04", "1.00e-03"],
    ),
    "more steps": ({"steps": 8}, "steps changes from 6 to 8", ["5.00e-04", "3.75e-04", "2.50e-04", "1.25e-04"]),
    "fewer steps": ({"steps": 5}, "steps changes from 6 to 5", ["2.00e-04"]),
    "betas and decay": (
        {"optimizer": {"learningRate": 1e-3, "warmup": 0, "schedule": "linear", "betas": [0.5, 0.9], "weightDecay": 0.1}},
        "optimizer.betas changes from [0.9, 0.999] to [0.5, 0.9]; optimizer.weightDecay changes from 0 to 0.1",
        ["3.33e-04", "1.67e-04"],
    ),
    "layout": ({"strategy": {"zero": 2, "precision": "fp32"}}, "strategy.zero changes from 0 to 2", ["3.33e-04", "1.67e-04"]),
}


@pytest.mark.parametrize("case", TAKEN)
def test_settings_that_may_change_count_from_the_first_step_on_and_are_said(case: str, plain: Stopped, resumed: Run) -> None:
    train, words, rates = TAKEN[case]

    attempt = resumed(plain, **train)

    assert attempt.code == 0, attempt.err
    first, *more = attempt.warnings
    assert first == f"{words}, at step 5"
    assert attempt.rates == rates
    goes_on = f"the learning rate goes on at {float(rates[0]):.3g} in step 5"
    assert [said[: len(goes_on)] for said in more] == ([goes_on] if rates[0] != "3.33e-04" else []), "only another rate is said"


def test_without_a_change_the_losses_are_those_of_a_run_left_alone(plain: Stopped, resumed: Run) -> None:
    attempt = resumed(plain)

    assert attempt.code == 0, attempt.err
    assert attempt.warnings == []
    losses = [json.loads((folder / "out" / "train" / "result.json").read_text())["losses"] for folder in (plain.folder, attempt.folder)]
    assert losses[1] == losses[0]


REFUSED: dict[str, tuple[Fields, str]] = {
    "method": ({"method": {"dora": {"rank": 4}}}, "method changes from lora to dora"),
    "rank": ({"method": {"lora": {"rank": 8}}}, "method.lora.alpha changes from 8 to 16, method.lora.rank changes from 4 to 8"),
    "objective": ({"method": {"lora": {"rank": 4}}, "objective": "clm"}, "objective changes from sft to clm"),
    "batch": ({"batch": {"global": 16, "micro": 4}}, "batch.global changes from 8 to 16"),
    "seed": ({"seed": 7}, "seed changes from 42 to 7"),
    "optimizer": ({"optimizer": {"name": "sgd"}}, "optimizer.name changes from adamw to sgd"),
    "states": ({"optimizer": {"states": "bf16"}}, "optimizer.states changes from fp32 to bf16"),
    "end before the checkpoint": ({"steps": 3}, "the checkpoint is of step 4, and the task now ends after step 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_of_another_task_are_refused_with_both_values(case: str, lora: Stopped, resumed: Run) -> None:
    train, words = REFUSED[case]

    attempt = resumed(lora, **train)

    assert attempt.code == 2
    assert words in attempt.err


def test_the_page_says_what_a_resume_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()
    told = [words for case, (_, words) in REFUSED.items() if case != "rank"]
    told += [words for case, (_, words, _) in TAKEN.items() if case in ("rate", "schedule", "warm-up", "layout")]
    told += [words.removeprefix("has ") for case, (_, words, _) in ROWS.items() if case != "a row less"]

    assert [words for words in told if words not in page] == []


def test_an_adapter_may_be_merged_at_the_end_after_all(lora: Stopped, resumed: Run) -> None:
    attempt = resumed(lora, method={"lora": {"rank": 4, "merge": True, "dropout": 0.1}})

    assert attempt.code == 0, attempt.err
    assert attempt.warnings == ["method.lora.dropout changes from 0 to 0.1, at step 5"]
    assert (attempt.folder / "out" / "train" / "merged" / "model.safetensors").is_file()


def of_an_earlier_version(before: Stopped, folder: Path) -> Stopped:
    """The same run, as a version of Tuneyard left it that stored neither settings nor the content of data."""
    shutil.copytree(before.folder, folder)
    output = folder / "out" / "train"
    manifest = checkpoint(output, 4) / "manifest.json"
    body = json.loads(manifest.read_text())
    del body["extra"]["contents"], body["extra"]["settings"]
    manifest.write_text(json.dumps(body))
    number, entry = max((at, each) for at, each in enumerate(entries_of(output), start=1) if each["kind"] == "commit")
    committed = {**entry, "sha256": sha256(manifest.read_bytes()).hexdigest()}
    (output / "checkpoints" / "log" / f"{number:08d}.json").write_text(json.dumps(committed))
    return Stopped(folder, before.material, before.data, before.train)


def test_a_checkpoint_of_an_earlier_version_proves_what_it_can(lora: Stopped, tmp_path: Path, resumed: Run) -> None:
    attempt = resumed(of_an_earlier_version(lora, tmp_path / "old"), method={"lora": {"rank": 4, "merge": True}})

    assert attempt.code == 0, attempt.err
    (warning,) = attempt.warnings
    assert "an earlier version of Tuneyard wrote the checkpoint, which does not prove that" in warning


def test_a_checkpoint_of_an_earlier_version_still_knows_its_method(lora: Stopped, tmp_path: Path, resumed: Run) -> None:
    attempt = resumed(of_an_earlier_version(lora, tmp_path / "old"), method={"lora": {"rank": 8}})

    assert attempt.code == 2
    assert "method was" in attempt.err


@pytest.fixture(scope="module")
def streamed(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return stopped_run(tmp_path_factory.mktemp("streamed"), material, {"streaming": True, "workers": 0})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": lambda lines: lines[::-1]}, f"has other rows than {THEN}: as many bytes, and a sample of them differs"),
        ({"rows": lambda lines: lines[1:]}, f"has other rows than {THEN}: "),
        ({"data": {"lossOn": "all"}}, "or the versions of the libraries are others (data.lossOn changes from auto to all)"),
        (
            {"data": {"streaming": False, "workers": "auto"}},
            f"was streamed {THEN}, and is prepared whole now (data.streaming changes",
        ),
    ],
)
def test_a_stream_of_other_rows_is_refused(change: Fields, words: str, streamed: Stopped, resumed: Run) -> None:
    attempt = resumed(streamed, **change)

    assert attempt.code == 2
    assert words in attempt.err


def test_a_stream_whose_files_were_copied_goes_on_and_says_so(streamed: Stopped, resumed: Run) -> None:
    attempt = resumed(streamed)

    assert attempt.code == 0, attempt.err
    (warning,) = attempt.warnings
    assert "were copied or written anew since the checkpoint; their sizes and a sample of their rows are the same" in warning


def test_parts_of_a_mixture_are_known_by_their_rows(material: Material, tmp_path_factory: pytest.TempPathFactory, resumed: Run) -> None:
    folder = tmp_path_factory.mktemp("mix")
    shutil.copy(material.text, folder / "text.jsonl")
    parts = [{"source": "chats.jsonl"}, {"source": str(folder / "text.jsonl"), "format": "text"}]
    before = stopped_run(folder, material, {"source": None, "mix": parts})

    attempt = resumed(before, rows=lambda lines: lines[::-1])

    assert attempt.code == 2
    assert f"chats.jsonl has the same 64 samples as {THEN}, in another order" in attempt.err


def test_pairs_of_preferences_are_known_by_their_rows(material: Material, tmp_path_factory: pytest.TempPathFactory, resumed: Run) -> None:
    pairs = replace(material, chats=material.preferences)
    before = stopped_run(tmp_path_factory.mktemp("pairs"), pairs, objective="dpo")

    attempt = resumed(before, rows=lambda lines: lines[::-1])

    assert attempt.code == 2
    assert "chats.jsonl has " in attempt.err
    assert THEN in attempt.err
