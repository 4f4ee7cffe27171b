"""Runs of history as a hub gives them to a search, and as a search gives its trials back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tuneyard.api import BadInput
from tuneyard.runtime.tune.past import past_attempts
from tuneyard.tuning import history_frame
from tuneyard.tuning.passed_on import PAST_RUNS, packed, told, trials_in, unpacked


def run(number: int, **result: Any) -> dict[str, Any]:
    settings = {"params_b": float(number), "gpus": 8, "framework": "tuneyard", "packed": 1.0, "lora_rank": None}
    return {"job": "secret", "namespace": "maps", "settings": settings, "status": "succeeded", "failure": "", "result": result}


def test_figures_are_passed_on_without_names_oldest_first() -> None:
    text = packed([run(2, tokens_per_s=800.0, peak_memory_gb=[60.0, 61.5]), run(1, tokens_per_s_per_gpu=50.0)])
    found = unpacked(text)
    assert "secret" not in json.dumps(found)
    assert [each["settings"]["params_b"] for each in found] == [1.0, 2.0]
    assert found[1]["result"] == {"tokens_per_s_per_gpu": 100.0, "peak_memory_gb": 61.5}


def test_waits_for_data_are_no_part_of_a_speed() -> None:
    """As for runs of this machine: both become the same row."""
    one = run(1, tokens_per_s=800.0, details={"bottleneck": {"stall": 0.5}})
    passed = history_frame(unpacked(packed([one]))).tokens_per_sec_per_gpu[0]
    assert passed == history_frame([one]).tokens_per_sec_per_gpu[0] == 200.0


def test_the_newest_runs_fill_the_room_that_there_is() -> None:
    runs = [run(number, tokens_per_s=number * 7919 % 10007 / 7) for number in range(8000, 0, -1)]
    text = packed(runs)
    assert 50_000 < len(text) <= 64 * 1024
    assert unpacked(text)[-1]["settings"]["params_b"] == 8000.0
    assert packed([]) == packed([run(1) | {"settings": None}]) == ""


@pytest.mark.parametrize("text", ["nonsense", "bm9uc2Vuc2U=", packed([run(1)])[:-8]])
def test_a_damaged_text_is_said_and_the_search_goes_on(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        unpacked(text)
    monkeypatch.setenv(PAST_RUNS, text)
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
    said: list[str] = []
    assert past_attempts(said.append) == []
    assert "cannot be read" in said[0]


def test_an_attempt_of_a_hub_learns_from_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAST_RUNS, packed([run(1, tokens_per_s=8.0)]))
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
    assert [each["result"]["tokens_per_s_per_gpu"] for each in past_attempts(lambda _: None)] == [1.0]


def test_trials_come_back_whole() -> None:
    base = {"gpus": 8, "micro_batch": 1, "zero_stage": 2}
    ran = {"status": "succeeded", "tokens_per_s_per_gpu": 3.0}
    text = told([(1, base, ran), (3, base | {"micro_batch": 4}, {"status": "failed", "failure": "OutOfMemory"})], base)
    assert text["trials"][0]["settings"] == {}
    (one, first), (three, second) = trials_in(json.loads(json.dumps(text)))
    assert (one, three) == (1, 3)
    assert (first["settings"], first["result"]) == (base, {"tokens_per_s_per_gpu": 3.0})
    assert (second["settings"]["micro_batch"], second["failure"], second["result"]) == (4, "OutOfMemory", {})


@pytest.mark.parametrize("text", [None, 5, "x", {}, {"settings": 3, "trials": []}, {"settings": {}, "trials": [1, {}, {"number": 1}]}])
def test_what_no_search_writes_teaches_nothing(text: Any) -> None:
    assert trials_in(text) == []
