"""The process of lm-evaluation-harness: `python -m tuneyard.scoring.harness.program ORDER`.

ORDER is a JSON file (`process.Order`): what to do, and where the result goes. The harness seeds global generators, configures logging, and
runs code of its tasks, so that it has a process of its own. `process` starts it, once before engines start and once after the last part.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuneyard.scoring.harness.unusable import Unusable
from tuneyard.scoring.own_functions import end_with_parent

_BOOTSTRAP = 1000
"""Samples for the error of a figure that is no mean. The harness's own 100,000 take minutes, and give the same two digits."""


def build(order: Mapping[str, Any]) -> dict[str, Any]:
    """Write the requests of all tasks. Raises Unusable."""
    import lm_eval

    from tuneyard.scoring.harness.model import AllRecorded, EngineModel
    from tuneyard.scoring.harness.tasks import guarded, loaded

    tasks, notes = loaded(order["tasks"], _folder(order), order["fewshot"])
    model = EngineModel(*_of_model(order), lambda: _requests_of(tasks))
    try:
        guarded("make requests", lambda: _evaluate(model, tasks, order))
    except AllRecorded:
        model.recorded.write(Path(order["requests"]))
        notes += [
            f"{count} prompts of task {task} are longer than engine.maxLength allows, and were cut on the left, as the harness does"
            for task, count in model.cut.items()
            if count
        ]
        return {"contents": model.recorded.contents, "version": lm_eval.__version__, "notes": notes, "asked": _requests_of(tasks)}
    raise Unusable("the tasks make no request", "look at their data and their splits")


def measure(order: Mapping[str, Any]) -> dict[str, Any]:
    """The harness's results, by the recorded answers. Raises Unusable."""
    from tuneyard.scoring.harness.answers import Answered
    from tuneyard.scoring.harness.model import EngineModel
    from tuneyard.scoring.harness.tasks import guarded, loaded

    os.environ["DISABLE_MULTIPROC"] = "1"  # one process computes errors of figures
    tasks, _ = loaded(order["tasks"], _folder(order), order["fewshot"])
    answered = Answered(Path(order["requests"]), Path(order["answers"]))
    model = EngineModel(*_of_model(order), lambda: 0, answered)
    found = guarded("compute figures", lambda: _evaluate(model, tasks, order))
    kept = ("results", "higher_is_better", "versions", "n-shot", "n-samples")
    return {name: found.get(name, {}) for name in kept}


def names(order: Mapping[str, Any]) -> dict[str, Any]:
    """Check the names of the tasks. Raises Unusable."""
    from tuneyard.scoring.harness.tasks import managed

    managed(order["tasks"], _folder(order))
    return {}


def _evaluate(model: Any, tasks: Any, order: Mapping[str, Any]) -> Any:
    from lm_eval.evaluator import evaluate

    return evaluate(
        lm=model,
        task_dict=tasks,
        limit=order["limit"],
        bootstrap_iters=_BOOTSTRAP,
        log_samples=False,
        apply_chat_template=order["chat"],
        fewshot_as_multiturn=order["chat"],
    )


def _requests_of(tasks: Mapping[str, Any]) -> int:
    return sum(instance.repeats for task in tasks["tasks"].values() for instance in task.instances)


def _of_model(order: Mapping[str, Any]) -> tuple[Any, int, dict[str, Any]]:
    """Tokenizer, longest context and settings of generation. Raises Unusable."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(order["tokenizer"], trust_remote_code=order["trust_remote_code"])
    except (OSError, ValueError) as error:
        raise Unusable(f"the model has no tokenizer that can be loaded: {error}", "save one beside the model") from error
    if order["chat"] and tokenizer.chat_template is None:
        raise Unusable("data.lmEval.chat is true, but the model's tokenizer has no chat template", "remove chat, or give the tokenizer one")
    if tokenizer.eos_token_id is None:
        raise Unusable("the model's tokenizer has no end token, with which the harness begins and ends texts", "give the tokenizer one")
    settings = Path(order["model"]) / "generation_config.json"
    return tokenizer, order["max_length"], json.loads(settings.read_text()) if settings.is_file() else {}


def _folder(order: Mapping[str, Any]) -> Path | None:
    return None if order["folder"] is None else Path(order["folder"])


def _plain(value: Any) -> Any:
    """Numbers of numpy as those of Python; text of everything else that is not JSON."""
    return value.item() if getattr(value, "shape", None) == () else str(value)


def main(path: str) -> None:
    """Carry out an order, and write its result: a group of values, or `refused` with cause and next step."""
    end_with_parent()
    order = json.loads(Path(path).read_text())
    try:
        result = {"build": build, "measure": measure, "names": names}[order["do"]](order)
    except Unusable as error:
        traceback.print_exc()
        result = {"refused": [error.cause, error.next_step]}
    Path(order["result"]).write_text(json.dumps(result, default=_plain))


if __name__ == "__main__":
    main(sys.argv[1])
