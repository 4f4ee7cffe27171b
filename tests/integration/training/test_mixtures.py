"""A mixture of prepared and streamed data in real training: its shares, its report, and kills that change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, sentences, train_request, train_task
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks
from tests.ranks.kills import Case, run_case

from tuneyard.training import train

pytestmark = pytest.mark.timeout(900)


def mix_in(folder: Path) -> dict[str, Any]:
    """Data of three parts; the streamed ones have several splits."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = sentences(200)
    for name, rows in (("a", 300), ("b", 40_000), ("c", 40_000)):
        lines = (json.dumps({"text": f"{name} {i} {texts[i % 200]}"}) + "\n" for i in range(rows))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    parts = [{"source": f"{folder}/{name}.jsonl", "weight": weight} for name, weight in (("a", 1), ("b", 2), ("c", 5))]
    return {"mix": parts, "maxLength": 64, "streaming": True, "workers": 1}


def test_a_mixture_has_its_shares_in_the_report_and_on_any_number_of_workers(material: Material, tmp_path: Path) -> None:
    data = mix_in(tmp_path / "data")
    one, two = (
        train_request(tmp_path / str(workers), train_task(material.model, material.text, data=data, steps=12), cpu_plan(workers=workers))
        for workers in (1, 2)
    )
    alone = train(one)
    (shared,) = results_in_ranks([two], workers=2)
    mixture = alone.details["mixture"]
    assert mixture["parts"] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert [sum(rows) for rows in mixture["rows_by_step"]] == [8] * 12
    assert [sum(rows) for rows in zip(*mixture["rows_by_step"], strict=True)] == [12, 24, 60]
    tokens = mixture["tokens_by_step"]
    assert sum(map(sum, tokens)) == alone.tokens
    assert all(
        (of_rows > 0) == (of_tokens > 0)
        for pair in zip(mixture["rows_by_step"], tokens, strict=True)
        for of_rows, of_tokens in zip(*pair, strict=True)
    )
    assert shared.details["mixture"] == mixture
    assert alone.losses == pytest.approx(shared.losses, rel=1e-4)


@pytest.mark.parametrize(("kills", "steps"), [(2, 12), pytest.param(6, 24, marks=pytest.mark.long)])
def test_killed_mixtures_end_like_those_left_alone(kills: int, steps: int, tmp_path: Path) -> None:
    task = {"data": mix_in(tmp_path / "data"), "steps": steps}
    outcome = run_case(Case(folder=str(tmp_path), plan={"workers": 2}, task=task, kills=kills, seed=5, steps=steps))
    assert outcome.kills == kills
    assert outcome.exact
