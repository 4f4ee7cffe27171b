"""Trains stretches of a run again, from one kept checkpoint to the next, and compares what comes out.

A run that continues from a checkpoint computes what the run itself computed: bit for bit in the same layout on the same kind of machine,
else to the rounding of the dtype. Whoever has changed a checkpoint, the data or the base cannot hide it, whatever else was forged.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from tuneyard.api import JobFailed
from tuneyard.catalog import gpu, local_sku
from tuneyard.planning import Plan, resolve
from tuneyard.storage import CommitLog, Holder, Store, open_store
from tuneyard.training.checkpoint.catalogue import commit_of
from tuneyard.training.checkpoint.layout import LOG
from tuneyard.training.checkpoint.pieces import WEIGHT
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.command import shape_of
from tuneyard.training.provenance.certificate import request_to_dict
from tuneyard.training.provenance.checking import Subject, checkpoint_reader
from tuneyard.training.provenance.findings import Finding
from tuneyard.training.request import TrainRequest

_TOLERANCES = {"fp32": 1e-4, "bf16": 5e-2, "fp16": 5e-2}
"""Largest relative difference of a weight's change in another layout, by the precision of the run."""
_NOISE = {"fp32": 1e-5, "bf16": 1e-2, "fp16": 1e-2}
"""Gradients below this share of the usual one are rounding, by the precision of the run. Adam divides a gradient by its own size, and so
makes steps of them: of a key's bias under softmax, for instance, whose gradient is zero."""
_OF_OTHER_HEADS = ("summary_", "classifier_")
"""Rates of dropout in a configuration that a language model does not use."""
_SECOND_MOMENT = "exp_avg_sq"
_LAST_LINES = 4


@dataclass(frozen=True)
class Stretch:
    """From the checkpoint of one step (0: from the start) to that of another."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"steps {self.first + 1} to {self.last}"


def stretches_of(subject: Subject, count: int, seed: int | None) -> list[Stretch]:
    """`count` stretches between kept checkpoints, chosen at random; all if there are fewer. The first begins at the start of the run.

    `seed`: of the choice; None: another choice each time, which nobody can foresee.
    """
    if subject.run is None:
        return []
    run = subject.run
    kept = [int(each["step"]) for each in subject.certificate.checkpoints if run.list(str(each["name"]))]
    found = [Stretch(first, last) for first, last in pairwise([0, *kept])]
    chance = random.SystemRandom() if seed is None else random.Random(seed)
    return sorted(chance.sample(found, min(count, len(found))), key=lambda stretch: stretch.first)


def replayed(subject: Subject, stretches: Sequence[Stretch], scratch: Path, *, workers: int | None) -> Iterator[Finding]:
    """Train each stretch again. `workers`: ranks on this machine; None: as many as the run had. Raises JobFailed if the ranks fail."""
    run = subject.run
    assert run is not None
    requests = {stretch: _request(subject, stretch, scratch / f"replay-{stretch.last}", workers) for stretch in stretches}
    first = next(iter(requests.values()), None)
    if first is not None and not _same_layout(subject, first.plan) and (why := _bound_to_layout(first)):
        words = f"{why}, so this run can only be trained again in its own layout"
        yield Finding("replay", "not checked", words)
        return
    for stretch, request in requests.items():
        if stretch.first:
            _lend(run, stretch.first, Path(request.output))
    _train(list(requests.values()), scratch)
    for stretch, request in requests.items():
        folder = Path(request.scratch)
        original = checkpoint_reader(run, stretch.last, folder / "original")
        again = checkpoint_reader(open_store(request.output), stretch.last, folder / "again")
        start = checkpoint_reader(run, stretch.first, folder / "start") if stretch.first else None
        yield _told(stretch, original, again, start, request.plan, same=_same_layout(subject, request.plan))
        shutil.rmtree(folder, ignore_errors=True)


def _request(subject: Subject, stretch: Stretch, folder: Path, workers: int | None) -> TrainRequest:
    request = subject.request(folder)
    count = workers or request.plan.workers
    if count != request.plan.workers or request.plan.sku != local_sku():
        plan = resolve(request.task, shape_of(request.task.model_copy(update={"name": request.model_uri})), gpu(local_sku()), count)
        request = replace(request, plan=plan)
    return replace(request, resume=stretch.first > 0, stop_at=stretch.last, run="replay")


def _bound_to_layout(request: TrainRequest) -> str:
    """Why another layout trains another model, beyond rounding; empty if it does not."""
    adapter, task = request.task.method.adapter, request.task
    if adapter is not None and adapter.dropout:
        return f"the adapter has dropout {adapter.dropout:g}, and another layout drops other activations"
    trust = task.model.trust_remote_code
    config = AutoConfig.from_pretrained(request.model_uri, revision=task.model.revision, trust_remote_code=trust).to_dict()
    router = config.get("router_aux_loss_coef") if task.router_loss is None else task.router_loss
    if router and "router_aux_loss_coef" in config:
        return "the router's loss is a mean over a micro-batch, and another layout has other micro-batches"
    if task.objective == "dpo":
        return ""  # the model itself drops nothing there
    rates = {name: value for name, value in config.items() if "drop" in name and not name.startswith(_OF_OTHER_HEADS)}
    active = [f"{name} {value:g}" for name, value in rates.items() if isinstance(value, float) and value > 0]
    return f"the model has {', '.join(active)}, and another layout drops other activations" if active else ""


def _same_layout(subject: Subject, plan: Plan) -> bool:
    then = subject.certificate.request["plan"]
    return all(
        then.get(name) == value
        for name, value in plan.to_dict().items()
        if name in ("sku", "workers", "zero", "precision", "tensor_parallel")
    )


def _lend(run: Store, step: int, output: Path) -> None:
    """A new output whose only checkpoint is that of `step`."""
    commit = commit_of(run, step)
    target = open_store(str(output))
    for file in run.list(commit.name):
        path = output / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        run.get_file(file.path, path)
    fence = CommitLog(target, LOG).open(Holder.this_process(job="tuneyard verify", attempt=1, run="replay").to_dict())
    fence.commit(step, commit.name, commit.sha256)
    fence.close()


def _train(requests: Sequence[TrainRequest], folder: Path) -> None:
    """Run the ranks, one request after the other. Raises JobFailed with their last words."""
    file, ranks = folder / "requests.json", requests[0].plan.workers
    own = ("output", "scratch", "resume", "stop_at")
    file.write_text(json.dumps([{**request_to_dict(each), **{name: getattr(each, name) for name in own}} for each in requests]))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    made = subprocess.run(
        [sys.executable, *launcher, "-m", "tuneyard.training.provenance.rank", str(file)],
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))},
        capture_output=True,
        text=True,
    )
    if made.returncode:
        lines = made.stderr.strip().splitlines()
        told = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "; ".join(lines[-_LAST_LINES:]))
        raise JobFailed(f"training again failed: {told}", "restore what it names; the certificate has the versions of the packages")


def _told(stretch: Stretch, original: Reader, again: Reader, start: Reader | None, plan: Plan, *, same: bool) -> Finding:
    about = "replay"
    names = original.shapes
    if set(names) != set(again.shapes):
        return Finding(about, "failed", f"{stretch}: the checkpoint holds other weights")
    different = [name for name in names if not torch.equal(original.whole(name, WEIGHT), again.whole(name, WEIGHT))]
    how = f"{plan.workers} rank{'s' * (plan.workers > 1)}"
    if not different:
        return Finding(about, "ok", f"{stretch}: {len(names)} weights are equal, bit for bit ({how})")
    noise = 0.0 if same else _NOISE[plan.precision] * _usual_gradient(original)
    largest = max(_difference(original, again, start, name, noise) for name in different)
    if same or largest > _TOLERANCES[plan.precision]:
        said = f"{stretch}: {len(different)} of {len(names)} weights differ by up to {largest:.1e} of their change ({how})"
        return Finding(about, "failed", said)
    return Finding(about, "ok", f"{stretch}: {len(names)} weights are equal to {largest:.0e} of their change, in another layout ({how})")


def _usual_gradient(reader: Reader) -> float:
    """The root of the mean second moment of all gradients, as the optimizer keeps them; 0 if it keeps none."""
    squares, count = 0.0, 0
    for name in reader.shapes:
        if _SECOND_MOMENT in reader.kinds_of(name):
            moment = reader.whole(name, _SECOND_MOMENT)
            squares, count = squares + float(moment.double().sum()), count + moment.numel()
    return (squares / count) ** 0.5 if count else 0.0


def _difference(original: Reader, again: Reader, start: Reader | None, name: str, noise: float) -> float:
    """|again - original| / |original - start|, as norms, over the elements whose gradients were above `noise`."""
    there, here = original.whole(name, WEIGHT).double(), again.whole(name, WEIGHT).double()
    before: Any = start.whole(name, WEIGHT).double() if start is not None else torch.zeros_like(there)
    change = float((there - before).norm())
    apart = here - there
    if noise and _SECOND_MOMENT in original.kinds_of(name):
        apart = apart[original.whole(name, _SECOND_MOMENT).reshape(apart.shape).sqrt() > noise]
    return float(apart.norm()) / max(change, 1e-12)
