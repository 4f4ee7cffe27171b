"""The request of a train task, fully resolved, and its result. Both cross processes as plain JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import RankTask, TrainTask
from tuneyard.catalog.gpu_facts import Basis
from tuneyard.data.shared.place import SharedShards
from tuneyard.planning import Plan


@dataclass(frozen=True, kw_only=True)
class NetworkChecks:
    """Network tests between the ranks, which the launcher runs before the model is loaded. `promised_gb_per_s`: expected bandwidth, if
    known; `before_s`: seconds already spent on other checks.
    """

    promised_gb_per_s: float | None = None
    before_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """One attempt at a train task.

    `task.model` and `task.data` have no `from`. Instead, `model_uri` has the weights, `adapter_uri` an adapter on top of them (if the start
    is an adapter), and `task.data` absolute URIs.
    """

    job: str
    name: str
    task: TrainTask
    plan: Plan
    model_uri: str
    output: str
    """URI of the task's own output folder, with checkpoints/ and model/ below it."""
    scratch: str
    """Local folder for temporary files of the attempt."""
    adapter_uri: str | None = None
    rank: RankTask | None = None
    """The ranker to train; `task` is then the result of its `as_training`."""
    resume: bool = True
    """Start from the newest committed checkpoint under `output`, if there is one."""
    stop_at: int | None = None
    """Stop after this step, as if the task were asked to."""
    ingestion: str = ""
    """Name of the actor that leads the task's ingestion service; empty: none."""
    streams: str = ""
    """Folder of this machine in which its ingestion service looks for streams; empty: none."""
    shared: SharedShards | None = None
    """Where the shards are that jobs of the team share; None: nowhere."""
    attempt: int = 1
    run: str = ""
    """Identifies all attempts of one run: a later attempt of the same run need not wait until an earlier one counts as dead."""
    trust_remote_code: bool = False
    network: NetworkChecks | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_trial(self) -> bool:
        """Whether a search runs this attempt to measure it: its name is that of the search, a slash, and a number."""
        return "/" in self.name


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Result on rank 0 at the end. `model_uri` is the folder of final weights, `adapter_uri` of a final adapter."""

    status: str
    """succeeded | stopped (asked to stop; a checkpoint was committed)"""
    steps: int
    losses: list[float]
    eval_losses: list[tuple[int, float]]
    tokens: int
    tokens_per_s: float
    mfu: float
    """Share of the dense peak of the devices at the precision; see `peak_from`."""
    flops_per_step: float
    peak_memory_gb: list[float]
    """Per rank: device memory on GPUs, resident memory of the process on cpu."""
    reserved_memory_gb: list[float]
    """Per rank: what torch's allocator held on the GPU at most, with what it could not use; 0 on cpu."""
    host_memory_gb: list[float]
    """Per rank: resident memory of the process at most, pinned memory included."""
    libraries_gb: list[float]
    """Per rank: resident memory of the process before it loaded the model, and the pages of shared libraries that it has read since; 0 if
    the system does not report it."""
    planned_memory_gb: float
    world_size: int
    wall_s: float
    split: dict[str, float]
    """Seconds by kind of work over all steps: see tracking.TimeSplit."""
    model_uri: str | None = None
    adapter_uri: str | None = None
    rank: RankTask | None = None
    """The trained ranker; `task` of the request is then the result of its `as_training`."""
    merged_uri: str | None = None
    resumed_from: int = 0
    """Step of the checkpoint this attempt started from; 0: none."""
    peak_from: Basis = "datasheet"
    """Origin of the peak in `mfu`: a data sheet, a measurement of the device, or a file of the user."""
    details: dict[str, Any] = field(default_factory=dict)
