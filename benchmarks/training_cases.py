"""What the training benchmarks share: a small model, a task, ranks in processes of their own, and pages with date and command."""

from __future__ import annotations

import datetime
import gc
import json
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.builders.models import sentences, write_model  # noqa: E402 - the root is on the path only from here on

from tuneyard.api import TrainTask  # noqa: E402
from tuneyard.planning import Plan  # noqa: E402
from tuneyard.training import TrainRequest, TrainResult, train  # noqa: E402

SHAPE = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4}


@dataclass(frozen=True)
class Answer:
    """A rank 0's result, and the bytes of all torch tensors that each rank held after its last step."""

    result: TrainResult
    tensor_bytes: int


def write_material(folder: Path, shape: Mapping[str, int] = SHAPE) -> tuple[Path, Path]:
    """A Llama-shaped model (6 million parameters unless another `shape` is given), and 256 texts."""
    model = write_model(folder / "model", **shape)
    text = folder / "text.jsonl"
    texts = sentences(768)
    text.write_text("".join(json.dumps({"text": " ".join(texts[i : i + 3])}) + "\n" for i in range(0, len(texts), 3)))
    return model, text


def task_of(model: Path, text: Path, **changes: Any) -> TrainTask:
    fields = {
        "model": {"name": str(model)},
        "data": {"source": str(text), "maxLength": 96},
        "objective": "clm",
        "optimizer": {"learningRate": 1e-3},
        "batch": {"global": 8},
        "steps": 20,
        "checkpoint": {"everySteps": 1000},
    }
    return TrainTask.model_validate({**fields, **changes})


def request_of(folder: Path, task: TrainTask, **layout: Any) -> TrainRequest:
    workers = layout.get("workers", 1)
    plan = Plan(
        **{
            "sku": "cpu",
            "workers": 1,
            "zero": 0,
            "precision": "fp32",
            "attention": "sdpa",
            "micro_batch": 2,
            "grad_accum": 4 // workers,
            **layout,
        }
    )
    assert task.model.name is not None
    return TrainRequest(
        job="benchmark",
        name="train",
        task=task,
        plan=plan,
        model_uri=task.model.name,
        output=str(folder / "out"),
        scratch=str(folder / "scratch"),
    )


def run_in_ranks(request: TrainRequest, *, torchrun: bool = True) -> Answer:
    """Run `request` in fresh processes, so that nothing of an earlier run is in their memory."""
    with tempfile.TemporaryDirectory() as folder:
        given, answered = Path(folder) / "request.pickle", Path(folder) / "answer.pickle"
        given.write_bytes(pickle.dumps(request))
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.plan.workers}"] if torchrun else []
        command = [sys.executable, "-W", "ignore", *launcher, __file__, str(given), str(answered)]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
        if not answered.exists():
            raise RuntimeError(done.stderr[-3000:])
        answer: Answer = pickle.loads(answered.read_bytes())
        return answer


def machine() -> str:
    import torch

    gpus = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else "no GPU"
    return f"{len(os.sched_getaffinity(0))} cores, {gpus}"


def write_page(name: str, title: str, lines: Sequence[str]) -> None:
    """Print the table, and write it to docs/benchmarks with date, command and machine."""
    today = datetime.date.today().isoformat()
    command = shlex.join(["python", f"benchmarks/{name}.py", *sys.argv[1:]])
    head = [f"# {title}", "", f"`{command}`, {today}, {machine()}.", ""]
    (ROOT / "docs" / "benchmarks" / f"{name}.md").write_text("\n".join([*head, *lines, ""]))
    print("\n".join(lines))


def _tensor_bytes() -> int:
    import torch

    storages = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _rank_main(given: Path, answered: Path) -> None:
    held: list[int] = []
    request: TrainRequest = pickle.loads(given.read_bytes())

    def emit(event: Any) -> None:
        if getattr(event, "step", 0) == request.task.steps and not held:
            held.append(_tensor_bytes())

    result = train(request, emit=emit)
    if os.environ.get("RANK", "0") == "0":
        answered.write_bytes(pickle.dumps(Answer(result, held[0])))


if __name__ == "__main__" and len(sys.argv) == 3:
    # Pickles name this module as it is imported elsewhere.
    sys.path.insert(0, str(Path(__file__).parent))
    from training_cases import _rank_main as main

    main(Path(sys.argv[1]), Path(sys.argv[2]))
