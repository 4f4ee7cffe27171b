"""A job as the rooms that run it would tell it: the events of a train task and two score tasks, for tests of what listens."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from tuneyard.api import JobSpec
from tuneyard.planning import Memory, Plan
from tuneyard.tracking import Checkpointed, Evaluated, Event, Recorder, Report, Scored, Step, TaskEvent, TimeSplit, Warned

PLAN = Plan(
    sku="h100-80gb",
    workers=4,
    zero=3,
    precision="bf16",
    attention="flash",
    micro_batch=2,
    grad_accum=4,
    memory=Memory(weights_gb=14.1, gradients_gb=3.2, optimizer_gb=21.4, activations_gb=12.8, other_gb=4.5),
)


def make_job(name: str = "support-bot", prompt: str = "question", **spec: Any) -> JobSpec:
    """A job with tasks base, train and judge."""
    score = {"data": {"source": "holdout.jsonl", "prompt": prompt, "reference": "answer"}, "metrics": ["exact_match"]}
    train = {"model": {"name": "models/base"}, "data": {"source": "chats.jsonl"}, "method": {"lora": {"rank": 16}}, "steps": 120}
    tasks = [
        {"name": "base", "score": {"model": {"name": "models/base"}, **score}},
        {"name": "train", "train": train},
        {"name": "judge", "dependsOn": ["train"], "score": {"model": {"from": "train"}, **score}},
    ]
    return JobSpec.model_validate(
        {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": name}, "spec": {"tasks": tasks, **spec}}
    )


def train_events(steps: int = 120, of: int | None = None, task: str = "train") -> Iterator[Event]:
    """A train task from its start to its last step; the same events every time."""
    chance = random.Random(7)
    of = of or steps
    yield TaskEvent(task=task, state="started", kind="train", plan=PLAN.to_dict())
    for step in range(1, steps + 1):
        saves = step % 40 == 0
        split = TimeSplit(data_s=0.01, forward_s=0.21, backward_s=0.43, optimizer_s=0.09, checkpoint_s=0.6 * saves, other_s=0.02)
        step_s = 0.76 + 0.6 * saves
        yield Step(
            task=task,
            step=step,
            of=of,
            loss=1.1 + 1.9 * math.exp(-step / 30) + chance.gauss(0, 0.05),
            learning_rate=2e-4 * (1 - step / of),
            tokens=16_384,
            step_s=step_s,
            tokens_per_s=16_384 / step_s * chance.uniform(0.96, 1.02),
            mfu=0.43 * 0.76 / step_s * chance.uniform(0.97, 1.01),
            eta_s=0.76 * (of - step),
            grad_norm=1.0,
            memory_gb=54.0,
            split=split,
        )
        if saves:
            yield Evaluated(task=task, step=step, loss=1.2 + 1.8 * math.exp(-step / 30))
            yield Checkpointed(task=task, step=step, uri=f"s3://models/support-bot/train/checkpoints/step-{step}", seconds=0.6, bytes=10**9)


def train_result() -> dict[str, Any]:
    """What the runtime says of the train task at its end."""
    return {
        "kind": "train",
        "status": "succeeded",
        "steps": 120,
        "tokens_per_s": 20_900.0,
        "mfu": 0.418,
        "flops_per_step": 3.4e15,
        "peak_memory_gb": [53.9, 54.2, 51.7, 54.0],
        "planned_memory_gb": 56.0,
        "world_size": 4,
        "wall_s": 99.2,
        "artifacts": {"adapter": "s3://models/support-bot/train/model"},
    }


def score_events(task: str, metrics: dict[str, float], prompt: str = "How do I reset my password?") -> Iterator[Event]:
    """A score task from start to end."""
    yield TaskEvent(task=task, state="started", kind="score")
    yield Scored(task=task, rows=150, of=300, errors=1, output_tokens_per_s=4_100.0, eta_s=12.0)
    yield Warned(task=task, message="row 17: the prompt is longer than the model's context")
    samples = [
        {"prompt": prompt, "output": "Open Settings, then Account, and choose Reset password.", "reference": "Settings > Account > Reset"},
        {"prompt": [{"role": "user", "content": "Hi"}], "output": "Hello! How can I help?", "reference": "Hello!"},
        {"prompt": "word " * 9000, "error": "the prompt is longer than the model's context (9,001 > 4,096 tokens)"},
    ]
    if task == "judge":
        samples[0] |= {"answer": "Look at the account page.", "against": "Write to the support."}
    result = {
        "rows": 300,
        "errors": 1,
        "metrics": metrics,
        "output_tokens_per_s": 4_180.0,
        "mfu": 0.0931,
        "output": f"s3://models/support-bot/{task}",
        "latency_s": {"p50": 0.41, "p90": 0.92, "p99": 1.63},
        "wall_s": 24.8,
        "samples": samples,
    }
    yield TaskEvent(task=task, state="succeeded", kind="score", result=result)


def finished_report(name: str = "support-bot", prompt: str = "How do I reset my password?") -> Report:
    """The report of a job that ran to its end."""
    recorder = Recorder(make_job(name), output="s3://models/support-bot")
    tell(recorder, score_events("base", {"exact_match": 0.212, "rouge_l": 0.305, "perplexity": 9.84}, prompt))
    tell(recorder, train_events())
    recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
    tell(recorder, score_events("judge", {"exact_match": 0.447, "rouge_l": 0.521, "perplexity": 3.12}, prompt))
    return recorder.close("succeeded")


def tell(recorder: Recorder, events: Iterator[Event]) -> None:
    for event in events:
        recorder(event)


def tune_result() -> dict[str, Any]:
    """A search of four trials, one of which ran out of memory."""

    def trial(number: int, micro: int, pack: bool, ratio: float | None, **more: Any) -> dict[str, Any]:
        point = {"data.pack": pack, "batch.micro": micro}
        measured = {"tokens_per_s": ratio * 1000 if ratio else None, "ratio": ratio, "predicted": 1500.0, "seconds": 50.0, "spread": 0.02}
        return {"number": number, "point": point, "failure": "", "message": "", **measured, **more}

    out_of_memory = {"failure": "OutOfMemory", "message": "a rank took <24 GB>"}
    return {
        "kind": "tune",
        "status": "succeeded",
        "output": "s3://models/search",
        "tuned": "chat",
        "objective": "tokens_per_s",
        "best": {"data.pack": True, "batch.micro": 4},
        "gain": 0.846,
        "ratios": [1.882, 1.846, 1.647],
        "trials": [trial(2, 4, True, 1.87), trial(3, 8, False, 0.9), trial(4, 16, True, None, **out_of_memory), trial(6, 2, True, 1.84)],
        "effects": [
            {"setting": "data.pack", "value": True, "ratio": 1.85, "trials": 3, "failed": 1},
            {"setting": "data.pack", "value": False, "ratio": 0.9, "trials": 1, "failed": 0},
        ],
        "wall_s": 904.0,
    }
