"""ProgramTrainer for rankers: tables step beside the optimizer, ids are exchanged a batch ahead, held-out rows get further figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from tuneyard.api.evaluation import OF_RANKERS
from tuneyard.ranking import PREFETCHED, ShardedTables, SlicedFigures, SlicedMetrics
from tuneyard.training.distributed import gather_objects
from tuneyard.training.nan_guard import refuse_predictions
from tuneyard.training.order import evaluation_batches
from tuneyard.training.program.contract import COUNT
from tuneyard.training.program.trainer import ProgramTrainer

Figures = dict[str, float]


def shown_slices(judged: SlicedFigures) -> dict[str, dict[str, Figures]]:
    """Figures of each column and value for the report. Undefined figures, such as AUC with one label, are left out."""
    return {
        column: {
            value: {"rows": figures.rows, **{name: found for name in OF_RANKERS if math.isfinite(found := getattr(figures, name))}}
            for value, figures in values.items()
        }
        for column, values in judged.slices.items()
    }


class TablesStep(TrainerCallback):
    """Updates tables after the optimizer has stepped, at the same fraction of their learning rate."""

    def __init__(self, trainer: RankTrainer) -> None:
        self._trainer = trainer

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002 - transformers' signature
        self._trainer.step_tables(state.global_step)
        return control


class RankTrainer(ProgramTrainer):
    """Trains a ranker whose tables are no parameters: wrappers and optimizers see only the dense part."""

    def __init__(self, *args: Any, tables: ShardedTables, slices: Sequence[str], learning_rate: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tables = tables
        self.last_figures: Figures = {}
        self.judged: dict[str, SlicedFigures] = {}
        """Figures by label, from the last evaluation."""
        self._slices = slices
        self._table_rate = learning_rate
        self.add_callback(TablesStep(self))

    def step_tables(self, step: int) -> None:
        """Update the rows that the micro-batches of this step have looked up."""
        share = self._get_learning_rate() / self.args.learning_rate
        self.tables.apply_gradients(self._table_rate * share, step=step)

    def get_train_dataloader(self) -> DataLoader:
        loader = super().get_train_dataloader()
        return loader if self.world.size == 1 else AheadLoader(loader, self.tables, self.args.device)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        """Every step is a full batch."""
        self._counts.extend(float(batch[COUNT]) for batch in batch_samples)
        return torch.tensor(float(self.batches.global_batch), device=device)

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> dict[str, float]:  # noqa: ARG002
        """Log loss, normalised entropy, AUC and calibration of the held-out rows, exact over any number of ranks."""
        rows = self.eval_dataset.rows
        batches = evaluation_batches(len(rows), self.args.per_device_eval_batch_size, self.batches.rank, self.batches.workers)
        judged = {task: SlicedMetrics(self._slices) for task in self.module.model.config.tasks}
        self.watch.mark("evaluation")
        ranker = self.module.model
        ranker.eval()
        for numbers in batches:
            # A rank without rows left still takes part in the exchange of ids.
            batch = self._prepare_inputs(rows.batch(numbers or [0]))
            with torch.no_grad(), self.compute_loss_context_manager():
                logits = ranker(batch).double().cpu().numpy()
            if not numbers:
                continue
            labels = batch["labels"].double().cpu().numpy()
            columns = {name: rows.coded(name, numbers) for name in self._slices}
            for at, metrics in enumerate(judged.values()):
                metrics.update(logits[:, at], labels[:, at], columns)
        ranker.train()
        self.watch.mark("other")
        everyone = gather_objects(self.world, judged)
        if any(each.whole.left_out for own in everyone for each in own.values()):  # a logit is not finite
            refuse_predictions(self.state.global_step, learning_rate=self._get_learning_rate(), table_rate=self._table_rate)
        self.judged = {task: reduce(SlicedMetrics.merge, (own[task] for own in everyone)).figures() for task in judged}
        self.last_figures = {}
        for number, (task, figures) in enumerate(self.judged.items()):
            of_task = f"_{task}" if number else ""  # figures of the first label have no suffix
            self.last_figures |= {f"{name}{of_task}": found for name in OF_RANKERS if math.isfinite(found := getattr(figures.whole, name))}
        loss = sum(figures.whole.log_loss for figures in self.judged.values()) / len(self.judged)
        self.on_evaluation(self.state.global_step, loss, self.last_figures)
        found = {f"{metric_key_prefix}_loss": loss}
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found


class AheadLoader:
    """Yields the batches of a loader, and starts the exchange of each batch's ids during the computation of the batch before it."""

    def __init__(self, loader: DataLoader, tables: ShardedTables, device: torch.device) -> None:
        self._loader, self._tables, self._device = loader, tables, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        before: dict[str, Any] | None = None
        for made in self._loader:
            batch = {name: value.to(self._device) if torch.is_tensor(value) else value for name, value in made.items()}
            batch[PREFETCHED] = self._tables.prefetch(batch)  # transformers and DeepSpeed copy tensors, but not numbers
            if before is not None:
                yield before
            before = batch
        if before is not None:
            yield before
