"""Method x ZeRO stage: works, or is refused with which words.

`python benchmarks/methods.py`: 10 steps each in one process per stage; writes docs/benchmarks/methods.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from training_cases import request_of, task_of, write_material, write_page

from tuneyard.api import CPU, Task, TrainTask, TuneyardError, check_task
from tuneyard.api.rules import show_fixes
from tuneyard.training import train

METHODS: dict[str, dict[str, Any]] = {
    "full": {"full": {}},
    "lora": {"lora": {"rank": 8}},
    "qlora": {"qlora": {"rank": 8}},
    "dora": {"dora": {"rank": 8}},
}
STAGES = (0, 1, 2, 3)
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
STEPS = 10


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, text = write_material(Path(folder), SHAPE)
        rows = [
            f"| {name} | " + " | ".join(_cell(Path(folder) / f"{name}-{zero}", model, text, name, zero) for zero in STAGES) + " |"
            for name in METHODS
        ]
    lines = [
        f"Loss at step 1 -> {STEPS} (fp32, global batch 8, learning rate 1e-3; one process,",
        "Llama shape of 2 layers, hidden width 64), or why it is refused.",
        "",
        "| method | ZeRO 0 | ZeRO 1 | ZeRO 2 | ZeRO 3 |",
        "|---|---|---|---|---|",
        *rows,
    ]
    write_page("methods", "Methods under ZeRO", lines)


def _cell(folder: Path, model: Path, text: Path, name: str, zero: int) -> str:
    task = task_of(model, text, method=METHODS[name], steps=STEPS, strategy={"zero": zero, "precision": "fp32"})
    refused = _refusal(task)
    if refused:
        return f"refused: {refused}"
    try:
        result = train(request_of(folder, task, zero=zero))
    except TuneyardError as error:
        return f"fails: {error.cause}"
    return f"{result.losses[0]:.4f} -> {result.losses[-1]:.4f}"


def _refusal(task: TrainTask) -> str:
    violations = check_task(Task(name="train", train=task), device=CPU)
    return "; ".join(
        f"{violation.rule.refused}, because {violation.rule.why}. Instead: {show_fixes(violation.nearest)}" for violation in violations
    )


if __name__ == "__main__":
    main()
