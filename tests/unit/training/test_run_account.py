"""What a run adds up about itself: rates, progress, the guard against NaN, the model card."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from huggingface_hub import ModelCard
from tests.servers.model_hub import faults_of_card

from tuneyard.api import JobFailed, TrainTask
from tuneyard.data import DataReport
from tuneyard.planning import Plan
from tuneyard.training import TrainRequest
from tuneyard.training.model_card import card_of_merged, model_card
from tuneyard.training.nan_guard import check_loss
from tuneyard.training.progress import Progress
from tuneyard.training.stop import listening
from tuneyard.training.throughput import Throughput


def test_rates_leave_out_the_first_step_checkpoints_and_evaluations() -> None:
    throughput = Throughput(Progress(), lambda tokens, _length: 6.0 * tokens, peak_flops=1200.0)
    throughput.add(100, 1000, {"forward": 50.0})
    throughput.add(100, 1000, {"forward": 0.5, "backward": 0.5, "checkpoint": 3.0, "evaluation": 7.0})

    mean = throughput.mean()

    assert mean.tokens_per_s == pytest.approx(100)
    assert mean.mfu == pytest.approx(0.5)
    assert throughput.flops_per_step == 600


def test_a_run_of_one_step_still_has_rates() -> None:
    throughput = Throughput(Progress(), lambda tokens, _length: tokens, peak_flops=1.0)
    throughput.add(100, 1000, {"forward": 2.0})

    assert throughput.mean().tokens_per_s == pytest.approx(50)


def test_attention_is_charged_by_the_length_of_samples_not_of_rows() -> None:
    lengths: list[float] = []
    throughput = Throughput(Progress(), lambda _tokens, length: lengths.append(length) or 1.0, peak_flops=1.0)

    throughput.add(tokens=30, squares=10 * 10 + 20 * 20, seconds={"forward": 1.0})

    assert lengths == [pytest.approx(500 / 30)]


def test_progress_survives_a_checkpoint() -> None:
    progress = Progress(losses=[2.0, 1.5], eval_losses=[(1, 1.9), (2, 1.8)], tokens=640, split_s={"forward": 1.25}, best_step=2)
    progress.evaluations_without_gain = 3

    assert Progress.from_dict(json.loads(json.dumps(progress.to_dict()))) == progress
    assert progress.best_eval_loss == 1.8


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run_with_cause_and_next_step(loss: float) -> None:
    with pytest.raises(JobFailed) as failure:
        check_loss(17, loss, learning_rate=0.5, precision="fp16", last_loss=3.25)

    assert "step 17" in failure.value.cause
    assert "0.5" in failure.value.cause
    assert "fp16" in failure.value.cause
    assert "bf16 or fp32" in failure.value.next_step


def test_a_stop_that_is_asked_for_is_noticed_without_asking_in_every_step() -> None:
    asked = threading.Event()
    with listening(asked.is_set) as stop:
        assert not stop.wanted
        asked.set()
        deadline = time.monotonic() + 120
        while not stop.wanted and time.monotonic() < deadline:
            time.sleep(0.05)

        assert stop.wanted


def card(model_uri: str = "acme/base", form: str = "chat", **fields: Any) -> str:
    """The card of a LoRA task, or with `fields` in place of the task's."""
    asked = {"model": {"name": "acme/base"}, "data": {"source": "s3://data/chats"}, "method": {"lora": {"rank": 8}}, "seed": 11}
    task = TrainTask.model_validate(asked | fields)
    plan = Plan(sku="h100-80gb", workers=8, zero=2, precision="bf16", attention="flash", micro_batch=4, grad_accum=1)
    request = TrainRequest(job="bot", name="tune", task=task, plan=plan, model_uri=model_uri, output="out", scratch="scratch")
    source = task.data.source or ""
    parts = [{"source": part.source, "format": form} for part in task.data.mix]
    counts = {"files": 1, "samples": 9, "rows": 9, "validation_rows": 0}
    report = DataReport(source=source, format=form, why="", max_length=2048, packed=True, parts=parts, **counts)
    return model_card(request, {"steps": 100, "held-out loss": 1.23456, "MFU": "41.0%"}, report)


def test_the_model_card_says_what_the_model_was_made_from_and_how() -> None:
    written = card()

    assert written.startswith("---\nlibrary_name: peft\nbase_model: acme/base\nbase_model_relation: adapter\ntags: [tuneyard]\n---\n")
    assert "`s3://data/chats`, format chat, up to 2048 tokens each; loss on the turns of the assistant." in written
    for fact in ("rank 8, alpha 16", "8 x h100-80gb", "32 rows (4 x 1 x 8)", "1.235", "41.0%", "| seed | 11 |"):
        assert fact in written
    assert "auto" not in written
    merged = card_of_merged(written)
    assert merged.startswith("---\nlibrary_name: transformers\nbase_model: acme/base\nbase_model_relation: finetune\n")
    assert merged.splitlines()[5:] == written.splitlines()[5:]


@pytest.mark.parametrize(
    ("form", "fields", "words"),
    [
        ("chat", {}, "loss on the turns of the assistant."),
        ("prompt-completion", {}, "loss on the completion."),
        ("text", {"objective": "clm"}, "loss on all tokens."),
        ("preference", {"objective": "dpo"}, "loss on both answers of a pair."),
        (
            "chat",
            {"data": {"source": "/d/x.jsonl", "lossOn": "all"}},
            "`x.jsonl`, format chat, up to 2048 tokens each; loss on all tokens.",
        ),
        ("text", {"data": {"mix": [{"source": "hf://a/b/c"}, {"source": "/d/y"}]}}, "a mixture of `hf://a/b/c` (text), `y` (text), up to"),
    ],
)
def test_the_model_card_says_what_auto_became(form: str, fields: dict[str, Any], words: str) -> None:
    written = card(form=form, **fields)

    assert words in written
    assert "auto" not in written


@pytest.mark.parametrize(
    "base", ["/home/me/models/base", "file:///home/me/models/base", "s3://bucket/base", "acme/base--x", "acme/base.git"]
)
def test_the_hub_accepts_the_card_whatever_the_base_is(base: str) -> None:
    """By the rules that the stand-in knows, and the client's own reading. The client loads any `base_model`."""
    for written in (card(base), card(base, data={"source": "hf://acme/chats/en"}), card(base, data={"source": "hf://a"})):
        assert faults_of_card(written) == []
        told = ModelCard(written).data.to_dict()
        assert "base_model" not in told
        assert "/home/me" not in written
    assert f"from `{base if base.startswith('s3') else base.rpartition('/')[2]}`" in written


def test_data_of_the_hub_are_named() -> None:
    assert ModelCard(card(data={"source": "hf://acme/chats/en"})).data.datasets == ["acme/chats"]
