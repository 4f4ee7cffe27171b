"""Preference pairs whose model, or whose rows, are split over ranks: the losses and rewards of one device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, sentences, train_request, train_task, write_model
from tests.ranks.groups import results_in_ranks
from tests.ranks.trl_losses import compare
from tests.zoo.proofs import proven_once

from tuneyard.training import TrainRequest, TrainResult, train

pytestmark = pytest.mark.timeout(900)

# 385 tokens: two ranks have unequal parts of the vocabulary.
SHAPES: dict[str, dict[str, Any]] = {"llama": {"vocab_size": 385, "tie_word_embeddings": False}, "mixtral": {"vocab_size": 385}}
TASKS: dict[str, dict[str, Any]] = {
    "full": {"data": {"validationFraction": 0.25}},
    "lora": {"method": {"lora": {"rank": 4}}},
    "packed": {"data": {"pack": True}, "preference": {"loss": "ipo"}},
    "experts": {"data": {"validationFraction": 0.25}, "routerLoss": 0.5},
    "first": {"method": {"lora": {"rank": 4, "saveModules": ["lm_head"]}}},
    "continued": {"method": {"lora": {"rank": 4, "saveModules": ["lm_head"]}}},
}
"""`continued` starts from the adapter of `first`, which has a head of its own, as has its copy."""
TENSOR, CONTEXT = {"workers": 2, "tensor_parallel": 2}, {"workers": 2, "context_parallel": 2}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("full", {**CONTEXT, "zero": 3, "recompute": True}),
    ("lora", {**TENSOR, "zero": 2, "recompute": True}),
    ("lora", {**CONTEXT, "zero": 2}),
    ("packed", {**TENSOR, "zero": 1, "sequence_parallel": True}),
    ("packed", {**CONTEXT, "zero": 1}),
    ("experts", {**TENSOR, "zero": 0}),
    ("experts", {**CONTEXT, "zero": 0}),
    ("continued", TENSOR),
    ("continued", CONTEXT),
]
FOUR: list[tuple[str, dict[str, Any]]] = [
    ("packed", {"workers": 4, "tensor_parallel": 2, "zero": 2, "grad_accum": 2}),
    ("packed", {"workers": 4, "context_parallel": 2, "zero": 0, "grad_accum": 2}),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: write_model(folder / kind, kind, **changes) for kind, changes in SHAPES.items()}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 pairs. Two thirds of the rejected answers have one word, which a single slice of a row holds."""
    texts = sentences(96)
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    triples = zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    pairs = [{"prompt": p, "chosen": f" {c}", "rejected": f" {r.split()[0] if at % 3 else r}"} for at, (p, c, r) in enumerate(triples)]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return path


def request_of(folder: Path, models: dict[str, Path], rows: Path, name: str, adapter: str | None, **plan: Any) -> TrainRequest:
    model = models["mixtral" if name == "experts" else "llama"]
    task: dict[str, Any] = {"objective": "dpo", "steps": 3, "optimizer": {"learningRate": 5e-3, "warmup": 0}, **TASKS[name]}
    task["data"] = {"source": str(rows), "maxLength": 61, "shuffle": False, **task.get("data", {})}
    layout = cpu_plan(**{"micro_batch": 2, "grad_accum": 4, **plan})
    return train_request(folder, train_task(model, rows, **task), layout, adapter_uri=adapter)


@pytest.fixture(scope="module")
def alone(models: dict[str, Path], rows: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainResult]:
    folder = tmp_path_factory.mktemp("alone")
    found: dict[str, TrainResult] = {}
    for name in TASKS:
        found[name] = train(request_of(folder / name, models, rows, name, found["first"].adapter_uri if name == "continued" else None))
    return found


@pytest.mark.parametrize(("cases", "workers"), [(CASES, 2), (FOUR, 4)], ids=["two ranks", "four ranks"])
def test_losses_and_rewards_are_those_of_one_device(
    cases: list[tuple[str, dict[str, Any]]],
    workers: int,
    models: dict[str, Path],
    rows: Path,
    alone: dict[str, TrainResult],
    tmp_path: Path,
) -> None:
    requests = [
        request_of(tmp_path / f"{number}", models, rows, name, alone["first"].adapter_uri if name == "continued" else None, **plan)
        for number, (name, plan) in enumerate(cases)
    ]
    for (name, plan), found in zip(cases, results_in_ranks(requests, workers), strict=True):
        expected = alone[name]
        assert found.losses == pytest.approx(expected.losses, rel=1e-6), (name, plan)
        assert dict(found.eval_losses) == pytest.approx(dict(expected.eval_losses), rel=1e-6), (name, plan)
        for figure, values in expected.details["rewards"].items():
            assert found.details["rewards"][figure] == pytest.approx(values, abs=1e-5), (name, plan, figure)
        assert found.tokens == expected.tokens, (name, plan)
        if "router" in expected.details:
            assert found.details["router"]["losses"] == pytest.approx(expected.details["router"]["losses"], rel=1e-5), plan
    assert alone["continued"].losses[0] == pytest.approx(0.6931472, abs=1e-6), "the adapter is its own reference"


@pytest.mark.parametrize("layout", [TENSOR, CONTEXT], ids=["tensor", "context"])
@proven_once
def test_losses_are_those_of_trl(layout: dict[str, Any], tmp_path: Path) -> None:
    found = compare(tmp_path, "llama", objective="dpo", layout=layout)
    assert found.ours == pytest.approx(found.theirs, rel=2e-6)
