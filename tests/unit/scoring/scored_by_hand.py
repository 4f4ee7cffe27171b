"""Outputs of score tasks without an engine: committed parts with given answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tuneyard.api import ScoreTask
from tuneyard.data.control_tokens import NONE, Spelled
from tuneyard.scoring import Measured, ScoreRequest, ScoreResult, Sums, finish, prepare
from tuneyard.scoring.exchange import Answer, Evaluate
from tuneyard.scoring.open_part import OpenPart
from tuneyard.scoring.own_metrics import own_metrics_of
from tuneyard.scoring.parts import commit
from tuneyard.scoring.similarity import similarities_of
from tuneyard.storage import open_store

UNMEASURED = Measured(wall_s=1.0, load_s=0.0, generation_s=0.0, deaths=0, stopped=False, settings=None)


def _prompts(opens_thoughts: bool | None, seen: list[Any]) -> Any:
    return SimpleNamespace(
        prompt=lambda prompt, **_: seen.append(prompt) or [1],
        tokens_of=len,
        opens_thoughts=lambda _: opens_thoughts,
        likelihood=lambda *_, **__: SimpleNamespace(ids=[1, 2], counted=[False, True]),
        chats=False,
        take_spelled=lambda: Spelled(frozenset({"<|im_end|>"})) if seen and "<|im_end|>" in str(seen[-1]) else NONE,
        continuation=lambda prompt, text, **_: seen.append(prompt + text) or SimpleNamespace(ids=[1, 2], counted=[False, True]),
    )


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Rows as JSONL; a file with the same content is left alone, because its time identifies it."""
    content = "".join(json.dumps(row) + "\n" for row in rows)
    if not path.exists() or path.read_text() != content:
        path.write_text(content)
    return path


def request(
    folder: Path,
    name: str,
    data: Path | str,
    metrics: Sequence[str] = ("exact_match",),
    source: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ScoreRequest:
    """A score task over `data` into the folder `name`. `source`: the task's whole `data` instead."""
    fields: dict[str, Any] = {
        "model": {"name": "m"},
        "data": source or {"source": str(data), "reference": "answer"},
        "metrics": list(metrics),
        "maxErrorFraction": 1.0,
        "rowsPerPart": 7,
    }
    (folder / "m").mkdir(exist_ok=True)
    task = ScoreTask.model_validate(fields | changes)
    return ScoreRequest(job="job", name=name, task=task, model_uri=str(folder / "m"), output=str(folder / name), scratch=str(folder))


def answer_all(
    asked: ScoreRequest,
    say: Callable[[int], Answer | str],
    parts: Sequence[int] | None = None,
    *,
    opens_thoughts: bool | None = False,
    seen: list[Any] | None = None,
) -> ScoreResult:
    """Score all parts (or `parts`) as a worker does. `say`: row -> the model's answer; `opens_thoughts`: as in `Prompts`; `seen`: gets the
    prompts."""
    prompts = _prompts(opens_thoughts, seen if seen is not None else [])
    job = prepare(asked)
    new, own, similarities = [], own_metrics_of(asked), similarities_of(asked)
    for part in job.missing if parts is None else parts:
        rows = job.order.rows.read(*job.order.layout.bounds(part))
        open_part = OpenPart(rows, job.order.request.task, own, similarities)
        waiting = open_part.requests(prompts)
        while waiting:
            one = waiting.pop(0)
            said = say(rows[one.key[1] % len(rows)]["index"])
            if isinstance(said, str):
                said = Answer(one.key, latency_s=0.1, text=said, finish_reason="stop", output_tokens=1)
            if isinstance(one, Evaluate):
                said = Answer(one.key, latency_s=0.1, nll=said.nll)
            waiting += open_part.take(one.key[1], said)
        scored = open_part.finish()
        sums = Sums.of(scored, job.order.columns.metrics)
        commit(open_store(asked.output), part, job.order.columns.encode(rows, scored, sums))
        new.append(sums)
    own.close()
    return finish(prepare(asked), [], UNMEASURED) if parts is None else finish(job, new, UNMEASURED)
