"""Training by a program: what it computes, on any number of workers and ZeRO stages, and across a stop. docs/program.md is its manual."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.builders.checkpoints import saves_in_turn, stop_after
from tests.builders.programs import CLASSES, example_data, example_request, line_request, program_request, program_task, write_program
from tests.ranks.groups import results_in_ranks, train_in_ranks

from tuneyard.api import BadInput, TuneyardError
from tuneyard.data.stream import splits, windows
from tuneyard.tracking.events import Event, Step, Warned
from tuneyard.training import TrainRequest, train

SIZES = {
    "clicks": (160, 128), "captions": (60, 32), "sines": (120, 16), "denoising": (60, 32), "ranker": (240, 512),
    "walks": (150, 32), "federated": (40, 8), "summaries": (50, 32), "photos": (60, 32),
}  # fmt: skip
"""Steps of an example, and rows of each."""
MEASURED = {"walks": ("arrived", 0.6), "federated": ("accuracy", 0.8), "summaries": ("rouge_l", 0.6), "photos": ("accuracy", 0.7)}
"""Examples whose loss says little: a metric of their predictions, and what it reaches."""
MORE: dict[str, dict[str, Any]] = {
    "federated": {"optimizer": {"name": "sgd", "learningRate": 1, "schedule": "constant", "warmup": 0, "maxGradNorm": 0}},
    "summaries": {"evaluation": {"everySteps": 25, "metrics": ["rouge_l"], "best": {"metric": "rouge_l"}, "predictions": True}},
}
OF_DATA: dict[str, dict[str, Any]] = {"photos": {"images": {"shortSide": 28}, "workers": 0}}
"""Fields of the data. Images are streamed, which `limit` does not go with."""
PADDED = {"captions": 0.02, "federated": 0.3, "summaries": 0.1}
REPLACES_WEIGHTS = ("sines", "federated")
"""Their loss takes steps of its own, for which ZeRO-3 would have to hold whole weights: refused there, see below."""


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    return {name: example_data(name, folder) for name in CLASSES}


@pytest.fixture(scope="session")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_program(tmp_path_factory.mktemp("line"))


def baseline(name: str, path: Path) -> float:
    """The loss of the best answer that looks at nothing: the share of clicks, how often each word is said, a flat line, no noise at all."""
    import pyarrow.parquet as pq

    table = pq.read_table(path).to_pydict()
    if name in ("clicks", "ranker"):
        share = float(np.mean(table["clicked"]))
        return float(-share * np.log(share) - (1 - share) * np.log(1 - share))
    if name == "captions":
        words = np.unique([word for text in table["caption"] for word in [*text.split(), "<end>"]], return_counts=True)[1] / 1.0
        return float(-(words / words.sum() * np.log(words / words.sum())).sum())
    if name == "sines":
        return float(np.mean(np.square(table["amplitude"])) / 2)
    return 1.0


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) if name == "ranker" else name for name in CLASSES])
def test_each_example_learns_what_a_constant_answer_cannot_know(name: str, data: dict[str, Path], tmp_path: Path) -> None:
    steps, batch = SIZES[name]
    fields: dict[str, Any] = {
        "steps": steps,
        "batch": {"global": batch},
        "data": {"source": str(data[name]), "validationFraction": 0.1, **OF_DATA.get(name, {})},
        "evaluation": {"predictions": True, "everySteps": steps // 2},
        **MORE.get(name, {}),
    }

    result = train(example_request(tmp_path, name, data[name], {"micro_batch": batch}, **fields))

    if name in MEASURED:
        metric, least = MEASURED[name]
        assert result.details["metrics"][metric] > least
    else:
        assert result.eval_losses[-1][1] < 0.95 * baseline(name, data[name])
    assert result.mfu > 0
    predicted = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [each["row"] for each in predicted] == list(range(result.details["data"]["validation_rows"]))


@pytest.mark.parametrize("name", CLASSES)
def test_each_example_gives_the_same_losses_on_any_workers_and_after_a_stop(name: str, data: dict[str, Path], tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "steps": 4,
        "batch": {"global": 16},
        "data": {"source": str(data[name]), "validationFraction": 0.05, **OF_DATA.get(name, {"limit": 800})},
    }
    fields |= {"checkpoint": {"everySteps": 2}, "evaluation": {"everySteps": 4}}
    fields |= {field: value for field, value in MORE.get(name, {}).items() if field == "optimizer"}
    sharded: dict[str, Any] = {"zero": 2} if name in REPLACES_WEIGHTS else {"zero": 3}
    layouts: dict[str, dict[str, Any]] = {"plain": {}, "sharded": sharded} if name not in MEASURED else {"sharded": sharded}
    if name == "captions":
        layouts["cut"] = {"tensor_parallel": 2, "zero": 2}

    def request(folder: str, plan: dict[str, Any]) -> TrainRequest:
        return example_request(tmp_path / folder, name, data[name], plan, **fields)

    one = train(request("one", {"micro_batch": 8}))
    two = results_in_ranks([request(key, {"workers": 2, "micro_batch": 4, **plan}) for key, plan in layouts.items()], workers=2)
    for key in layouts:  # what a kill after the first checkpoint leaves
        shutil.copytree(tmp_path / key, tmp_path / f"{key}-killed")
        stop_after(2, tmp_path / f"{key}-killed" / "out")
    requests = [request(f"{key}-killed", {"workers": 2, "micro_batch": 4, **plan}) for key, plan in layouts.items()]
    resumed = results_in_ranks(requests, workers=2)

    for whole, after in zip(two, resumed, strict=True):
        assert whole.losses == pytest.approx(one.losses, rel=1e-4)
        assert whole.eval_losses[-1][1] == pytest.approx(one.eval_losses[-1][1], rel=1e-4)
        # Rows of a smaller batch are padded to a smaller length.
        assert whole.flops_per_step == pytest.approx(one.flops_per_step, rel=PADDED.get(name, 0))
        assert after.resumed_from == 2
        assert after.losses == pytest.approx(whole.losses, rel=1e-6)


def test_streamed_rows_go_on_after_a_stop_in_any_window_and_count_bad_rows(
    line: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "LEAST_SPLIT_BYTES", 512)
    monkeypatch.setattr(windows, "_FIRST_BYTES", 512)
    source = tmp_path / "rows.jsonl"
    source.write_text((line / "rows.jsonl").read_text() + '{"x": [1.0\n')
    data = {"source": str(source), "streaming": True, "workers": 1, "validationFraction": 0.2, "maxBadFraction": 0.05}
    fields: dict[str, Any] = {"data": data, "steps": 20, "checkpoint": {"everySteps": 5, "keep": 4}, "evaluation": {"everySteps": 20}}
    with saves_in_turn():
        whole = train(line_request(tmp_path / "whole", line, **fields))

    assert whole.details["epochs"] > 2
    assert (whole.details["data"]["bad"], whole.details["data"]["streamed"]) == (1, True)
    assert whole.details["data"]["validation_rows"] == 64 - whole.details["data"]["rows"] > 0
    for step in (5, 15):
        shutil.copytree(tmp_path / "whole", tmp_path / f"stopped-{step}")
        stop_after(step, tmp_path / f"stopped-{step}" / "out")
        resumed = train(line_request(tmp_path / f"stopped-{step}", line, **fields))
        assert (resumed.resumed_from, resumed.losses, resumed.eval_losses) == (step, whole.losses, whole.eval_losses)


def test_every_stage_of_zero_gives_the_same_losses_and_checkpoints_that_one_worker_goes_on_from(line: Path, tmp_path: Path) -> None:
    stages = {"zero-1": {"zero": 1}, "zero-2": {"zero": 2}, "zero-3": {"zero": 3}}
    whole = train(line_request(tmp_path / "one", line))
    requests = [line_request(tmp_path / name, line, {"workers": 2, **plan}, checkpoint={"everySteps": 2}) for name, plan in stages.items()]
    sharded = results_in_ranks(requests, workers=2)

    for name, result in zip(stages, sharded, strict=True):
        assert result.losses == pytest.approx(whole.losses, rel=1e-5)
        stop_after(4, tmp_path / name / "out")
        resumed = train(line_request(tmp_path / name, line, checkpoint={"everySteps": 2}))
        assert resumed.resumed_from == 4
        assert resumed.losses == pytest.approx(whole.losses, rel=1e-5)


def test_a_resume_on_other_rows_is_refused(tmp_path: Path) -> None:
    line = write_program(tmp_path / "line")
    train(line_request(tmp_path, line, checkpoint={"everySteps": 2}))
    stop_after(4, tmp_path / "out")
    rows = (line / "rows.jsonl").read_text().splitlines()
    (line / "rows.jsonl").write_text("".join(f"{row}\n" for row in reversed(rows)))

    with pytest.raises(BadInput, match="has other rows than when the checkpoint was written"):
        train(line_request(tmp_path, line, checkpoint={"everySteps": 2}))


def test_a_mean_over_other_things_than_rows_is_exact_by_count(tmp_path: Path) -> None:
    """Rows have 0 to 3 scored points: however the batch is cut, a step's loss is the mean over all points of it."""
    collate = """points = [[i < 4 * row["x"][0] - 0.5 for i in range(3)] for row in rows]
        kept = torch.tensor(points).float()
        return {"x": torch.tensor([row["x"] for row in rows]), "y": torch.tensor([row["y"] for row in rows]), "kept": kept,
                "count": kept.sum()}"""
    loss = """errors = (model(batch["x"])[:, 0] - batch["y"]).square()[:, None] * batch["kept"]
        return errors.sum() / batch["kept"].sum().clamp(min=1)"""
    program = write_program(tmp_path / "program", collate=collate, loss=loss)
    plans = {"whole": {"micro_batch": 8}, "cut": {"micro_batch": 1}, "both": {"workers": 2, "micro_batch": 2}}
    fields: dict[str, Any] = {"data": {"source": str(program / "rows.jsonl"), "validationFraction": 0.3}, "evaluation": {"everySteps": 6}}

    one, cut = (train(line_request(tmp_path / key, program, plans[key], **fields)) for key in ("whole", "cut"))
    (both,) = results_in_ranks([line_request(tmp_path / "both", program, plans["both"], **fields)], workers=2)

    for other in (cut, both):
        assert other.losses == pytest.approx(one.losses, rel=1e-5)
        assert other.eval_losses[-1][1] == pytest.approx(one.eval_losses[-1][1], rel=1e-5)


def test_flops_are_counted_by_torch_and_rates_are_of_rows(line: Path, tmp_path: Path) -> None:
    heard: list[Event] = []

    result = train(line_request(tmp_path, line), emit=heard.append)

    assert result.flops_per_step == 8 * (2 * 2 + 2 * 2)  # of each row: a product of two numbers, and its gradient by the weights
    assert result.tokens == result.tokens_per_s == 0
    assert result.details["rows"] == 6 * 8
    assert result.details["rows_per_s"] > 0
    assert all(event.rows_per_s and not event.tokens for event in heard if isinstance(event, Step))


def test_the_model_is_weights_with_the_source_that_loads_them_and_a_later_task_goes_on_from_it(line: Path, tmp_path: Path) -> None:
    first = train(line_request(tmp_path / "first", line, steps=40, optimizer={"learningRate": 0.1, "schedule": "constant"}))
    folder = tmp_path / "first" / "out" / "model"

    on = train(line_request(tmp_path / "second", line, model={"name": str(folder)}, steps=1))

    assert sorted(load_file(folder / "model.safetensors")) == ["bias", "weight"]
    assert json.loads((folder / "program.json").read_text())["program"] == "line:Line"
    assert (folder / "program" / "line.py").read_text() == (line / "line.py").read_text()
    assert on.losses[0] < first.losses[0] / 4


def test_a_program_trains_a_model_that_transformers_loads(tmp_path: Path) -> None:
    """`train.model` names a folder, and the program has no `model`: under ZeRO-3 its weights are cut while they load."""
    from transformers import BertConfig, BertForSequenceClassification, set_seed

    set_seed(3)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=1,
        hidden_dropout_prob=0.0,
    )
    config.attention_probs_dropout_prob = 0.0
    BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    source = """
        import torch


        class Scores:
            def collate(self, rows):
                ids = torch.tensor([[int(8 * row["x"][0]), 10 + int(8 * row["x"][1])] for row in rows])
                return {"ids": ids, "y": torch.tensor([row["y"] for row in rows])}

            def loss(self, model, batch):
                return (model(input_ids=batch["ids"]).logits[:, 0] - batch["y"]).square().mean()
    """
    program = write_program(tmp_path / "program", source, name="scores")
    task = program_task("scores:Scores", program, program / "rows.jsonl", model={"name": str(tmp_path / "bert")})

    one = train(program_request(tmp_path / "one", task))
    (sharded,) = results_in_ranks([program_request(tmp_path / "sharded", task, {"workers": 2, "zero": 3})], workers=2)

    assert sharded.losses == pytest.approx(one.losses, rel=1e-4)
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "sharded" / "out" / "model")
    assert loaded.num_labels == 1


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "a vector": ({"loss": "return (model(batch['x'])[:, 0] - batch['y']).square()"}, "tensor of shape [2], and not a scalar"),
    "a number": ({"loss": "return float((model(batch['x'])[:, 0] - batch['y']).mean())"}, "returned a float, and not a tensor"),
    "no gradient": ({"loss": "return batch['y'].mean()"}, "depends on no trained parameter"),
    "unused parameters": (
        {"model": "return nn.ModuleDict({'a': nn.Linear(2, 1), 'b': nn.Linear(2, 1)})", "loss": "return model['a'](batch['x']).mean()"},
        "does not depend on 2 of the model's parameters: b.weight, b.bias",
    ),
    "labels": (
        {"loss": "return model(batch['x']).mean() + batch['labels'].mean()"},
        "reads batch['labels'], and its collate makes count, x, y",
    ),
    "ragged": (
        {"collate": "return {'x': torch.stack([torch.zeros(1 + i) for i, _ in enumerate(rows)])}"},
        "collate of line:Line failed: RuntimeError: stack expects each tensor to be equal size, but got [1] at entry 0 and [2] at entry 1, "
        "at line.py line 11: return {'x'",
    ),
    "a list": ({"collate": "return {'x': [torch.zeros(1 + i) for i, _ in enumerate(rows)]}"}, "returned x as 2 tensors ([1], [2] …)"),
    "no tensor": ({"collate": "return {'x': [row['x'] for row in rows]}"}, "returned x as list, and not as a tensor"),
    "count": ({"collate": "return {'x': torch.zeros(2, 2), 'count': -1}"}, "returned count as -1"),
    "no column": ({"collate": "return {'x': torch.tensor([row['z'] for row in rows])}"}, "KeyError: 'z', at line.py line 11"),
    "no module": ({"model": "return 3"}, "returned int, and not a torch module"),
    "batch norm": (
        {"model": "return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))"},
        "changes 1.running_mean, 1.running_var, 1.num_batches_tracked while it trains",
    ),
    "predictions": ({"predict": "return [{'y': 1.0}]"}, "returned 1 predictions for 2 rows"),
    "no json": ({"predict": "return [{'y': each} for each in model(batch['x'])]"}, "a value that JSON cannot hold"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_program_that_cannot_train_is_refused_with_the_line_that_is_wrong(case: str, tmp_path: Path) -> None:
    changes, said = WRONG[case]
    program = write_program(tmp_path / "program", **changes)
    fields: dict[str, Any] = {"data": {"source": str(program / "rows.jsonl"), "validationFraction": 0.2}}

    with pytest.raises(TuneyardError) as raised:
        train(line_request(tmp_path, program, evaluation={"predictions": case in ("predictions", "no json")}, **fields))

    assert said in raised.value.cause
    assert raised.value.next_step


def test_a_loss_that_is_no_number_ends_the_run_before_anything_is_saved(tmp_path: Path) -> None:
    program = write_program(tmp_path / "program", loss="return (model(batch['x'])[:, 0] - batch['y']).log().mean()")

    with pytest.raises(TuneyardError, match="the loss became nan at step 1"):
        train(line_request(tmp_path, program))


def test_what_depends_on_the_cut_of_a_batch_is_said(tmp_path: Path) -> None:
    losses = {
        "no mean": ("return (model(batch['x'])[:, 0] - batch['y']).square().mean().sqrt()", "is no mean over its rows"),
        "noise": ("return (model(batch['x'])[:, 0] + torch.randn(len(batch['x']))).square().mean()", "draws random numbers"),
    }
    for name, (loss, said) in losses.items():
        heard: list[Event] = []
        program = write_program(tmp_path / name, loss=loss)
        train(line_request(tmp_path / name, program, {"micro_batch": 4}), emit=heard.append)
        assert [said in event.message for event in heard if isinstance(event, Warned)] == [True]


def test_ranks_that_do_not_agree_are_refused(tmp_path: Path) -> None:
    keys = "import os\n        return {'x': torch.zeros(2, 2), ('y' if os.environ['RANK'] == '0' else 'z'): torch.zeros(2)}"
    weights = "import os\n        torch.manual_seed(int(os.environ['RANK']))\n        return nn.Linear(2, 1)"
    penalty = "return model(batch['x']).square().mean() + 1e-6 * sum(each.square().sum() for each in model.parameters())"
    cases: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
        "weights": ({"model": weights}, {}, "made other weights on rank 0 than on rank 1"),
        "keys": ({"collate": keys, "loss": "return model(batch['x']).mean()"}, {}, "makes different batches: y, z"),
        "cut weights": ({"loss": penalty}, {"zero": 3}, "reads weights outside of their module's forward (square)"),
        "tensors": ({"loss": penalty}, {"tensor_parallel": 2}, "cannot be cut over 2 ranks: 2 ranks shard nothing"),
    }
    requests = [
        line_request(tmp_path / name, write_program(tmp_path / name / "program", **changes), {"workers": 2, **plan})
        for name, (changes, plan, _) in cases.items()
    ]

    answers = train_in_ranks(requests, workers=2)

    for answer, (_, _, said) in zip(answers, cases.values(), strict=True):
        assert isinstance(answer, TuneyardError)
        assert said in answer.cause or said.replace("rank 0 than on rank 1", "rank 1 than on rank 0") in answer.cause


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("lines:Line", "there is no module lines"),
        ("line:Lin", "module line has no Lin (did you mean Line?)"),
        ("line:nn", "has no function collate and no loss"),
        ("broken:Line", "importing broken failed: ModuleNotFoundError: No module named 'nowhere', at broken.py line 1: import nowhere"),
        ("wrong:Line", "importing wrong failed: SyntaxError: '(' was never closed"),
        ("asks:Line", "making Line() failed: TypeError"),
    ],
)
def test_a_program_that_is_not_there_is_refused(program: str, said: str, line: Path, tmp_path: Path) -> None:
    folder = tmp_path / "program"
    shutil.copytree(line, folder)
    (folder / "broken.py").write_text("import nowhere\n")
    (folder / "wrong.py").write_text("x = (\n")
    (folder / "asks.py").write_text("class Line:\n    def __init__(self, width):\n        pass\n")

    with pytest.raises(TuneyardError) as raised:
        train(program_request(tmp_path, program_task(program, folder, folder / "rows.jsonl")))

    assert said in raised.value.cause
