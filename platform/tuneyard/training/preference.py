"""Training on preference pairs (DPO, Rafailov et al. 2023): the steps, data and checkpoints of every other objective, with a loss on two
samples and a reference.

The reference is the start of the task. In full training it is a second copy of the model. With a new adapter it is the model without the
adapter; with an adapter that is continued, a frozen copy of that adapter. It never has dropout, and the model's own dropout is off: only an
adapter's `dropout` counts, as the task asks for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.integrations.liger import apply_liger_kernel

from tuneyard.api.evaluation import OF_PAIRS
from tuneyard.parallel import vocabulary_parts
from tuneyard.parallel.context import ContextParallel
from tuneyard.training.adapters import REFERENCE
from tuneyard.training.pairs import Cut, PairCollator, answer_sums
from tuneyard.training.preference_losses import LOSSES, Ratios
from tuneyard.training.proofs.rows import Form
from tuneyard.training.trainer import SteppedTrainer

_NO_INPUTS = ("targets", "places", "counts", "held", "last", "reference")
_KEPT = "logits_to_keep"


def without_dropout(model: nn.Module) -> None:
    """Turn off the dropout of all modules, and of layers that are dropped at random. Modules keep shares in nn.Dropout, as numbers, or in
    a configuration, of which they get a copy: the model's own is saved.
    """
    copies: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        _clear_shares(module)
        config = vars(module).get("config")
        if config is None or isinstance(module, PreTrainedModel):
            continue
        if id(config) not in copies:
            copies[id(config)] = copy(config)
            _clear_shares(copies[id(config)])
        module.config = copies[id(config)]


def _clear_shares(of: Any) -> None:
    for name, value in vars(of).items():
        if isinstance(value, float) and "drop" in name:
            setattr(of, name, 0.0)


class PreferenceTrainer(SteppedTrainer):
    """SteppedTrainer for pairs. The loss is a mean over pairs, and `figures` are TRL's: means of beta times the log-ratios (rewards), and
    the share of pairs whose chosen answer has the higher one.
    """

    FIGURES = OF_PAIRS
    data_collator: PairCollator

    def __init__(
        self, *args: Any, loss: str, beta: float, reference: nn.Module | None, context: ContextParallel | None = None, **kwargs: Any
    ) -> None:
        """`reference`: the second copy of the model, cut as the model is; None: the model without its adapter, or with the adapter of the
        start. `context`: the ranks that hold slices of the same rows.
        """
        super().__init__(*args, **kwargs)
        self.loss_is_scaled_for_ga = True  # by the pairs of the global batch
        self._loss, self._beta = LOSSES[loss], beta
        self._cut = Cut(vocabulary_parts(self.model), context)
        if reference is not None and context is not None:
            context.prepare(reference)
        self._reference = None if reference is None else self._prepared(reference)
        model: Any = self.model
        bare = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._takes_kept = _KEPT in inspect.signature(bare.forward).parameters

    def _prepared(self, reference: nn.Module) -> nn.Module:
        """The reference on this rank's device; with ZeRO-3, in parts over the ranks, as the model is."""
        reference.requires_grad_(False).eval()
        if self.args.use_liger_kernel:  # transformers gives them to the model when training begins
            apply_liger_kernel(reference, self.args.liger_kernel_config)
        if not self.is_deepspeed_enabled:
            prepared: nn.Module = self.accelerator.prepare_model(reference, evaluation_mode=True)
            return prepared
        config = deepcopy(self.accelerator.state.deepspeed_plugin.deepspeed_config)
        if config["zero_optimization"]["stage"] != 3:
            return reference.to(self.args.device)
        from tuneyard.training.zero_stack import deepspeed

        config["zero_optimization"].pop("offload_optimizer", None)  # it has none
        engine: nn.Module = deepspeed.initialize(model=reference, config=config)[0]
        engine.eval()
        return engine

    @property
    def is_packed(self) -> bool:
        return self.data_collator.packed

    @property
    def _collate_whole_rows(self) -> Callable[[list[Any]], dict[str, Any]]:
        return replace(self.data_collator, index=0, ranks=1)

    @property
    def _form(self) -> Form:
        return "packed" if self.is_packed else "pairs"

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        """Pairs of the global batch."""
        pairs = torch.tensor(float(sum(len(batch["counts"]) // 2 for batch in batch_samples)), device=device)
        mesh = self.world.mesh
        if self.is_packed and mesh.data > 1:  # unpacked micro-batches all have equally many
            torch.distributed.all_reduce(pairs)
            return pairs / (self.world.size // mesh.data)  # ranks that share rows count the same pairs
        return pairs * mesh.data

    def weight_of(self, batch: dict[str, Any]) -> float:
        """Number of pairs."""
        return len(batch["counts"]) // 2

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        self.watch.mark("forward")
        return super().compute_loss(model, {**inputs, "reference": self._reference_sums(inputs)}, return_outputs, num_items_in_batch)

    def loss_and_outputs(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> tuple[torch.Tensor, Any]:
        outputs = model(**self._model_inputs(inputs))
        losses, figures = self._judged(answer_sums(outputs.logits, inputs, self._cut), inputs)
        share = self.world.mesh.data / num_items_in_batch
        self._step_figures += figures.sum(dim=1) * share
        return losses.sum() * share, outputs

    def measured(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        sums = answer_sums(model(**self._model_inputs(inputs)).logits, inputs, self._cut)
        losses, figures = self._judged(sums, {**inputs, "reference": self._reference_sums(inputs)})
        return torch.cat([losses[None], figures]).mean(dim=1)

    def _judged(self, sums: torch.Tensor, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """The losses (pairs) and FIGURES (figures, pairs). `sums`: log-probabilities of the samples."""
        ratios = (sums - inputs["reference"]).float()
        counts = torch.tensor(inputs["counts"], device=sums.device)
        losses = self._loss(Ratios(ratios[::2], ratios[1::2], counts[::2], counts[1::2]), self._beta)
        chosen, rejected = self._beta * ratios[::2].detach(), self._beta * ratios[1::2].detach()
        return losses, torch.stack([(chosen > rejected).float(), chosen - rejected, chosen, rejected])

    def _model_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Logits before the first answer are not asked for."""
        kept = {_KEPT: inputs["last"]} if self._takes_kept else {}
        return {name: value for name, value in inputs.items() if name not in _NO_INPUTS} | kept

    def _reference_sums(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Log-probabilities of the samples by the reference."""
        with torch.no_grad(), self._as_reference() as model:
            return answer_sums(model(**self._model_inputs(inputs)).logits, inputs, self._cut)

    @contextmanager
    def _as_reference(self) -> Iterator[Any]:
        """The reference. Inside, an adapted model has the adapter of the start, or none."""
        if self._reference is not None:
            yield self._reference
            return
        model: Any = self.model
        training = model.training
        model.eval()  # no dropout, and nothing is recomputed
        try:
            if REFERENCE not in model.peft_config:
                with model.disable_adapter():
                    yield model
            else:
                model.set_adapter(REFERENCE, inference_mode=True)
                try:
                    yield model
                finally:
                    model.set_adapter("default")
        finally:
            model.train(training)
