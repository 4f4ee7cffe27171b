"""SteppedTrainer for a program's loss: the mean of a step, its FLOPs, and the checks of a program before it trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from tuneyard.api import BadInput
from tuneyard.training.generators import kept_generators
from tuneyard.training.program.checks import UNTRAINED_ADVICE, refuse_differing_batches
from tuneyard.training.program.contract import COUNT
from tuneyard.training.program.even_calls import even_calls
from tuneyard.training.program.flops import FlopAccount
from tuneyard.training.program.judge import Judge
from tuneyard.training.program.module import ProgramModule
from tuneyard.training.program.rows import checked_batch
from tuneyard.training.trainer import SteppedTrainer


class ProgramTrainer(SteppedTrainer):
    """Trains a ProgramModule. In its account, `tokens` are rows and `squares` are FLOPs: `Throughput` combines them."""

    def __init__(self, *args: Any, flops: FlopAccount, acts: FlopAccount | None = None, judge: Judge | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._flops_of_acts = acts or FlopAccount()
        self._judge = judge
        self.loss_is_scaled_for_ga = True  # by compute_loss, over the global batch
        self._counts: deque[float] = deque()
        self._flops = flops
        self._unchecked = True

    @property
    def module(self) -> ProgramModule:
        module: ProgramModule = self.model
        return module

    def _probe(self) -> None:
        """No test of attention, because the model is unknown. Its first batches are checked instead, and its metrics on a few rows."""
        if self._judge is not None:
            self._judge.try_out(self)

    def figures_of_rows(self) -> Mapping[str, float]:
        return self._judge.figures(self) if self._judge is not None else {}

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        """`count` of the global batch, exact on every rank. Raises BadInput if it is 0, or if ranks made different batches."""
        loaded = self.module.loaded
        if self._unchecked:
            refuse_differing_batches(self.world, batch_samples, f"collate of {loaded.name}")
        if loaded.acts:
            self._act(batch_samples)
            if self._unchecked:
                refuse_differing_batches(self.world, batch_samples, f"rollout of {loaded.name}")
        self._unchecked = False
        counts = [float(batch[COUNT]) for batch in batch_samples]
        self._counts.extend(counts)
        total = torch.tensor(sum(counts), dtype=torch.float64, device=device)
        if self.world.size > 1:
            torch.distributed.all_reduce(total)
            total /= self.world.mesh.tensor  # ranks of a tensor group have the same rows
        if not total:
            raise BadInput(
                f"the loss of step {self.state.global_step + 1} is a mean over nothing: count is 0 in the whole batch",
                "raise batch.global, or leave out rows without anything to learn",
            )
        return total

    def acted(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch of held-out rows as the loss gets it. The random numbers of the next step stay what they were."""
        if not self.module.loaded.acts:
            return batch
        with kept_generators():
            return self._rolled_out(batch)

    def _rolled_out(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch that the program's `rollout` makes of a batch of its collate, with the weights of this step. Collective."""
        model, what = self.model_wrapped, f"rollout of {self.module.loaded.name}"
        given = self._prepare_inputs(batch)
        was_training = model.training
        model.eval()
        calls = even_calls(self.module.model, self.world, what)
        with calls, torch.no_grad(), self.compute_loss_context_manager(), self._flops_of_acts.counting(given):
            found = model(given, "rollout")
        model.train(was_training)
        return checked_batch(found, float(batch[COUNT]), what)

    def _act(self, batches: list[dict[str, Any]]) -> None:
        """Roll out all micro-batches of a step before its first loss, so that `count` of the step is known. In place."""
        self.watch.mark("forward")
        for batch in batches:
            rolled = self._rolled_out(batch)
            self._step_squares += self._flops_of_acts.of(batch)
            batch.clear()
            batch.update(rolled)
        self.watch.mark("other")

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        with self._flops.counting(inputs):
            loss = super().training_step(model, inputs, num_items_in_batch)
        self._step_squares += self._flops.of(inputs)
        return loss

    def loss_of(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """A micro-batch's share in the mean of the global batch, times the ranks with other rows: DDP and DeepSpeed average over them.
        Without `num_items_in_batch`, the mean over this batch.
        """
        try:
            loss: torch.Tensor = model(inputs)
        except RuntimeError as error:
            if "finished reduction in the prior iteration" not in str(error):
                raise
            name = self.module.loaded.name
            raise BadInput(
                f"the loss of {name} did not depend on all parameters at step {self.state.global_step}", UNTRAINED_ADVICE
            ) from error
        if num_items_in_batch is None:
            return loss
        share = self._counts.popleft() * self.world.mesh.data / float(num_items_in_batch)
        # A mean over nothing may be 0 / 0, and NaN times 0 is NaN.
        return loss * share if share else torch.nan_to_num(loss) * 0.0

    def weight_of(self, batch: dict[str, Any]) -> float:
        return float(batch[COUNT])
