"""Direct preference optimisation by TRL's DPOTrainer, with the steps, data and checkpoints of every other objective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from tuneyard.api import TrainTask
from tuneyard.planning import Plan
from tuneyard.training.arguments import argument_values
from tuneyard.training.collate import WIDTHS
from tuneyard.training.distributed import World
from tuneyard.training.models import load_model
from tuneyard.training.request import TrainRequest
from tuneyard.training.trainer import SteppedTrainer


def preference_arguments(task: TrainTask, plan: Plan, *, steps: int, scratch: Path, largest_parameter: int = 0) -> DPOConfig:
    """The arguments of any objective, with DPO's own in addition."""
    values = argument_values(task, plan, steps=steps, scratch=scratch, largest_parameter=largest_parameter)
    return DPOConfig(
        **values, beta=task.preference.beta, loss_type=task.preference.loss, max_length=task.data.max_length, disable_dropout=True
    )


def preference_trainer(
    request: TrainRequest,
    model: Any,
    arguments: DPOConfig,
    world: World,
    *,
    start: str,
    tokenizer: Any,
    train: Any,
    validation: Any | None,
) -> SteppedTrainer:
    """The trainer. The reference model is the start: a second copy of the weights for full training, else the model without its new
    adapter.
    """
    reference = load_model(request, start, world) if request.task.method.adapter is None else None
    longest = request.task.data.max_length
    fits = request.plan.sku != "cpu" and longest % WIDTHS == 0  # TRL would pad beyond the longest row
    return PreferenceTrainer(
        model=model,
        ref_model=reference,
        args=arguments,
        data_collator=PreferenceCollator(
            pad_token_id=tokenizer.pad_token_id, max_length=longest, pad_to_multiple_of=WIDTHS if fits else None
        ),
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
    )


class PreferenceCollator(DataCollatorForPreference):
    """TRL's collator, with the token account of every batch."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().torch_call(examples)
        lengths = batch["attention_mask"].sum(dim=1)
        pairs = lengths.view(2, -1).sum(dim=0)  # the chosen answers of all rows, then the rejected ones
        return {**batch, "tokens": pairs.tolist(), "squares": int((lengths * lengths).sum())}


class PreferenceTrainer(SteppedTrainer, DPOTrainer):
    """DPOTrainer with Tuneyard's steps, without telemetry."""

    def weight_of(self, batch: dict[str, Any]) -> int:
        """Number of pairs: the loss is a mean over them."""
        return int(batch["input_ids"].shape[0]) // 2

    def _send_telemetry(self) -> None:
        """TRL would report the creation of this trainer to its authors."""
