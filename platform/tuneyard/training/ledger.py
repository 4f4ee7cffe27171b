"""The account of every step: one small all-reduce, whose result is passed to the NaN guard, the stop, the rates and the listener.

On a GPU the numbers of a step are read after the next step has been queued, so that the GPU never waits for Python. On cpu they are read at
once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from transformers import TrainerCallback

from tuneyard.tracking.events import Emit, Step, StepsBegin
from tuneyard.training.distributed import World
from tuneyard.training.expert_load import busiest, moved, relative_load
from tuneyard.training.memory import peak_gb
from tuneyard.training.nan_guard import check_loss, refuse_gradient
from tuneyard.training.progress import Progress
from tuneyard.training.stop import StopRequest
from tuneyard.training.stopwatch import Lap, split_of
from tuneyard.training.throughput import Throughput
from tuneyard.training.trainer import StepAccount, SteppedTrainer


@dataclass(frozen=True, kw_only=True)
class _Totals:
    """Sums over all ranks. `router_loss` and `busiest` are None for models without experts."""

    loss: float
    tokens: float
    squares: float
    router_loss: float | None
    busiest: float | None
    figures: dict[str, float]


@dataclass(kw_only=True)
class _Entry:
    """One step in progress. In turn it gets `reduced` on the device, `totals` in Python, a `lap`, and is then reported."""

    step: int
    account: StepAccount
    reduced: torch.Tensor
    totals: _Totals | None = None
    lap: Lap | None = None


class Ledger(TrainerCallback):
    """Accounts for all steps so far. `stopped` is true once any rank was asked to stop and all ranks know it."""

    def __init__(
        self,
        *,
        task: str,
        steps: int,
        precision: str,
        world: World,
        progress: Progress,
        throughput: Throughput,
        emit: Emit,
        stop_at: int | None = None,
    ) -> None:
        self._task = task
        self._steps = steps
        self._stop_at = stop_at
        self._precision = precision
        self._world = world
        self._progress = progress
        self._throughput = throughput
        self._emit = emit
        self._lag = 1 if world.device.type == "cuda" else 0
        self._open: deque[_Entry] = deque()
        self._smooth_step_s = 0.0
        self._told = 0
        self._begun = False
        self.stopped = False

    def attach(self, trainer: SteppedTrainer, stop: StopRequest) -> None:
        self._trainer = trainer
        self._stop = stop

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - transformers' signature
        if not self._begun:
            self._begun = True
            self._emit(StepsBegin(task=self._task))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002 - transformers' signature
        account = self._trainer.account_step()
        self._open.append(_Entry(step=state.global_step, account=account, reduced=self._reduce(account)))
        self._settle(keep=self._lag)
        self.stopped = self.stopped or state.global_step == self._stop_at
        if self.stopped:
            control.should_save = True
            control.should_training_stop = True
        return control

    def on_lap(self, lap: Lap) -> None:
        """The step of the last `on_step_end` is over, with its checkpoint and evaluation."""
        self._open[-1].lap = lap
        self._tell(keep=self._lag)

    def settle(self) -> None:
        """Read the loss of every step so far; waits for the GPU. Raises JobFailed if one is not finite."""
        self._settle(keep=0)

    def finish(self) -> None:
        """Report the steps that are still open."""
        self._settle(keep=0)
        self._tell(keep=0)

    def _reduce(self, account: StepAccount) -> torch.Tensor:
        share = torch.cat([torch.stack([account.loss, account.router_loss]).double(), account.figures.double()]) / self._world.size
        broken = self._is_broken(account.grad_norm).to(share.device, torch.float64, non_blocking=True).reshape(1)
        plain = [float(self._stop.wanted), account.tokens, account.squares, *account.part_tokens]
        numbers = torch.tensor(plain, dtype=torch.float64)
        parts = [share, broken, numbers.to(share.device, non_blocking=True)]
        if account.expert_load is not None:
            parts.append(account.expert_load.double().flatten())
        row = torch.cat(parts)
        if self._world.size > 1:
            dist.all_reduce(row)
        return row

    def _is_broken(self, grad_norm: Any) -> torch.Tensor:
        """Whether the optimizer has stepped with a gradient that is not finite. With fp16 the loss scaler skips such a step. DeepSpeed
        reports a norm that is not finite as -1.
        """
        if grad_norm is None or self._precision == "fp16":
            return torch.zeros(1)
        norm = torch.as_tensor(grad_norm).detach()
        return ~torch.isfinite(norm) | (norm < 0)

    def _settle(self, keep: int) -> None:
        for entry in list(self._open)[: len(self._open) - keep]:
            if entry.totals is None:
                loss, router_loss, *rest = entry.reduced.tolist()
                figures = dict(zip(self._trainer.FIGURES, rest, strict=False))
                broken, stops, *sums = rest[len(figures) :]
                # All ranks of a tensor group count the rows that they share.
                tokens, squares, *others = (np.array(sums) / self._world.mesh.tensor).tolist()
                parts, counts = np.split(np.array(others), [len(entry.account.part_tokens)])
                self._know_loss(entry, loss)
                if broken:
                    refuse_gradient(entry.step, learning_rate=entry.account.learning_rate, precision=self._precision)
                router = router_loss if self._trainer.router_weight else None
                if router is not None:
                    self._progress.router_losses.append(router)
                for name, value in figures.items():
                    self._progress.step_figures.setdefault(name, []).append(value)
                self._progress.tokens += int(tokens)
                if parts.size:
                    self._progress.part_tokens.append(parts.astype(int).tolist())
                self.stopped = self.stopped or stops > 0
                busiest_expert = self._know_experts(entry, counts)
                entry.totals = _Totals(
                    loss=loss, tokens=tokens, squares=squares, router_loss=router, busiest=busiest_expert, figures=figures
                )

    def _know_experts(self, entry: _Entry, counts: npt.NDArray[np.float64]) -> float | None:
        if entry.account.expert_load is None:
            return None
        load = relative_load(np.reshape(counts, entry.account.expert_load.shape))
        self._progress.expert_load = moved(self._progress.expert_load, load)
        self._progress.busiest.append(busiest(load))
        return self._progress.busiest[-1]

    def _know_loss(self, entry: _Entry, loss: float) -> None:
        losses = self._progress.losses
        last_loss = losses[-1] if losses else None
        check_loss(entry.step, loss, learning_rate=entry.account.learning_rate, precision=self._precision, last_loss=last_loss)
        losses.append(loss)

    def _tell(self, keep: int) -> None:
        while len(self._open) > keep and self._open[0].lap is not None:
            entry = self._open.popleft()
            assert entry.totals is not None
            assert entry.lap is not None
            totals, seconds = entry.totals, entry.lap.seconds()
            rate = self._throughput.add(totals.tokens, totals.squares, seconds)
            self._told += 1
            # An exponential mean of the last steps: an estimate that follows without large jumps. The first step loads kernels.
            self._smooth_step_s = rate.step_s if self._told <= 2 else 0.9 * self._smooth_step_s + 0.1 * rate.step_s
            in_tokens = self._throughput.unit == "tokens"
            self._emit(
                Step(
                    task=self._task,
                    step=entry.step,
                    of=self._steps,
                    loss=totals.loss,
                    router_loss=totals.router_loss,
                    busiest_expert=totals.busiest,
                    figures=totals.figures,
                    learning_rate=entry.account.learning_rate,
                    tokens=int(totals.tokens) if in_tokens else 0,
                    step_s=rate.step_s,
                    tokens_per_s=rate.tokens_per_s if in_tokens else 0.0,
                    rows_per_s=None if in_tokens else rate.tokens_per_s,
                    mfu=rate.mfu,
                    eta_s=(self._steps - entry.step) * self._smooth_step_s,
                    grad_norm=None if entry.account.grad_norm is None else float(entry.account.grad_norm),
                    memory_gb=peak_gb(self._world.device),
                    split=split_of(seconds),
                )
            )
