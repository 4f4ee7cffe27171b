"""What a train task is asked to do, with nothing left open, and what it answers. Both cross processes as plain JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import RankTask, TrainTask
from tuneyard.catalog.gpu_facts import Basis
from tuneyard.planning import Plan


@dataclass(frozen=True, kw_only=True)
class NetworkChecks:
    """The launcher tries the network between the ranks before the model is loaded. `promised_gb_per_s`: what it should carry, where
    that is known; `before_s`: seconds that were spent on other checks before."""

    promised_gb_per_s: float | None = None
    before_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """One attempt at a train task.

    `task.model` and `task.data` hold no `from` any more: `model_uri` (weights) and `adapter_uri` (an adapter on top of
    them, where the start is one) and absolute URIs in `task.data` stand in their place.
    """

    job: str
    name: str
    task: TrainTask
    plan: Plan
    model_uri: str
    output: str
    """URI of the task's own output folder: checkpoints/ and model/ go below it."""
    scratch: str
    """Local folder for what need not outlive the attempt."""
    adapter_uri: str | None = None
    rank: RankTask | None = None
    """The ranker that is trained; `task` is then what `as_training` made of it."""
    resume: bool = True
    ingestion: str = ""
    """Name of the actor that leads the task's ingestion service; empty: there is none."""
    streams: str = ""
    """Folder of this machine where its ingestion service looks for streams; empty: there is none."""
    """Start from the newest committed checkpoint under `output`, if there is one."""
    attempt: int = 1
    run: str = ""
    """The same for all attempts of one run, and for no other: a later attempt need not wait until an earlier one counts as dead."""
    trust_remote_code: bool = False
    network: NetworkChecks | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What rank 0 knows at the end. `model_uri` is the folder of final weights, `adapter_uri` of a final adapter."""

    status: str
    """succeeded | stopped (asked to stop; a checkpoint was committed)"""
    steps: int
    losses: list[float]
    eval_losses: list[tuple[int, float]]
    tokens: int
    tokens_per_s: float
    mfu: float
    """Of the dense peak of the devices at the precision; see `peak_from`."""
    flops_per_step: float
    peak_memory_gb: list[float]
    """Per rank: device memory on GPUs, resident memory of the process on cpu."""
    libraries_gb: list[float]
    """Per rank: resident memory of the process before it loaded the model; 0 where the system does not say."""
    planned_memory_gb: float
    world_size: int
    wall_s: float
    split: dict[str, float]
    """Seconds by kind of work over all steps: see tracking.TimeSplit."""
    model_uri: str | None = None
    adapter_uri: str | None = None
    rank: RankTask | None = None
    """The ranker that is trained; `task` is then what `as_training` made of it."""
    merged_uri: str | None = None
    resumed_from: int = 0
    """Step of the checkpoint this attempt started from; 0: none."""
    peak_from: Basis = "datasheet"
    """Where the peak of `mfu` comes from: a data sheet, a measurement of the device, or a file of the user."""
    details: dict[str, Any] = field(default_factory=dict)
