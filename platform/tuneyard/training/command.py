"""`python -m tuneyard.training JOB.yaml --task NAME --out DIR`: one train task without Ray, in one process or under torchrun."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tuneyard.api import BadInput, TrainTask, TuneyardError, load_jobspec
from tuneyard.api.errors import said_by
from tuneyard.catalog import ModelShape, gpu, local_sku
from tuneyard.catalog.built import model_shape_of
from tuneyard.data.visible import marked
from tuneyard.planning import Site, plan_of_program, plan_with_rows, resolve
from tuneyard.storage import absolute, open_store
from tuneyard.tracking.events import Checkpointed, Emit, Evaluated, Event, SampleShown, Stage, Step, Warned
from tuneyard.tracking.progress.words import rate_words
from tuneyard.training import TrainRequest, train
from tuneyard.training.model_finder import FoundModel, find_model, is_name
from tuneyard.training.rows_of_step import keep_rows, kept_rows

RESULT = "result.json"
_SHOWN_CHARACTERS = 1500


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a task. Exit status 0 if it succeeded or was stopped at a checkpoint, else the error's."""
    options = _parser().parse_args(arguments)
    is_first = os.environ.get("RANK", "0") == "0"
    try:
        request = _request(options)
        result = train(request, emit=_printer())
    except TuneyardError as error:
        if is_first:
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if is_first:
        path = Path(request.output) / RESULT
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(result), indent=1))
        print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tuneyard.training", description=__doc__)
    parser.add_argument("job", type=Path, help="JobSpec file")
    parser.add_argument("--task", required=True, help="name of the train task")
    parser.add_argument("--out", type=Path, required=True, help="output folder; the task's own folder is made in it")
    parser.add_argument("--resume", action="store_true", help="continue from the newest committed checkpoint in the output")
    return parser


def _request(options: argparse.Namespace) -> TrainRequest:
    job = load_jobspec(options.job)
    task = next((t.train for t in job.spec.tasks if t.name == options.task), None)
    if task is None:
        names = ", ".join(t.name for t in job.spec.tasks if t.train is not None) or "none"
        raise BadInput(f"{options.job} has no train task {options.task!r}", f"train tasks in it: {names}")
    task = _with_absolute_paths(task, options.job.absolute().parent)
    name = task.model.name or ""
    found = FoundModel("", name) if task.program is not None and not is_name(name) else find_model(name)
    model = task.model.model_copy(update={"name": found.model_uri or None, "revision": found.revision or task.model.revision})
    task = task.model_copy(update={"model": model})
    out = options.out.absolute() / options.task
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    kind, per_host = gpu(local_sku()), int(os.environ.get("LOCAL_WORLD_SIZE", str(workers)))
    network_gb_s = kind.network_gb_s if per_host < workers else None  # ranks on cpu share a machine if the network is unknown
    if task.program is not None:
        plan = plan_of_program(task, kind, workers)
    else:
        site: Site = {"gpus_per_node": per_host, "network_gb_s": network_gb_s}
        shape, output = shape_of(task), open_store(str(out))
        kept = kept_rows(output) if task.batch.is_open and options.resume else None
        if kept is None:
            plan = resolve(task, shape, kind, workers, **site)
        else:
            plan = plan_with_rows(task, kept, shape, kind, workers, **site)
        if task.batch.is_open:
            keep_rows(output, plan, anew=not options.resume)
    return TrainRequest(
        job=job.metadata.name,
        name=options.task,
        task=task.with_rows(plan.global_batch) if task.batch.is_open else task,
        plan=plan,
        model_uri=found.model_uri,
        adapter_uri=found.adapter_uri,
        output=str(out),
        scratch=str(out / "scratch"),
        resume=options.resume,
    )


def _with_absolute_paths(task: TrainTask, base: Path) -> TrainTask:
    if task.model.from_task or any(source.from_task for source in task.data.sources().values()):
        raise BadInput("the task starts from another task's output", "run the whole job: tuneyard run")
    name = task.model.name
    model = absolute(name, base) if name is not None and ((base / name).exists() or name.startswith(".")) else name
    program = absolute(task.program_dir or "", base) if task.program is not None else None
    data = task.data.with_sources(lambda source: source.model_copy(update={"source": absolute(source.source or "", base)}))
    return task.model_copy(update={"model": task.model.model_copy(update={"name": model}), "data": data, "program_dir": program})


def shape_of(task: TrainTask) -> ModelShape:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(task.model.name, revision=task.model.revision, trust_remote_code=task.model.trust_remote_code)
    except (OSError, ValueError) as error:
        raise BadInput(f"{task.model.name} is not a model: {said_by(error)}", "point model.name at a folder with config.json") from error
    return model_shape_of(json.loads(config.to_json_string()))


def _printer() -> Emit:
    def show(event: Event) -> None:
        line = _line(event)
        if line:
            print(line, flush=True)

    return show


def _line(event: Event) -> str:
    match event:
        case Step():
            rate = rate_words(event.tokens_per_s, event.rows_per_s)
            return (
                f"step {event.step}/{event.of}  loss {event.loss:.4f}  lr {event.learning_rate:.2e}  {rate}  "
                f"MFU {event.mfu:.1%}  ETA {event.eta_s:.0f} s"
            )
        case Evaluated():
            return f"step {event.step}  held-out loss {event.words}"
        case Checkpointed():
            return f"step {event.step}  checkpoint {event.uri} ({event.bytes / 1e6:.1f} MB, {event.seconds:.1f} s)"
        case SampleShown(pieces=pieces):
            return f"a sample as the model sees it, with «» around the text that carries loss:\n{marked(pieces, _SHOWN_CHARACTERS)}"
        case Warned():
            return f"warning: {event.message}"
        case Stage(of=of, done=done) if not of or done >= of:
            return event.name
        case _:
            return ""
