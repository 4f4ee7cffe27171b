"""The Hugging Face Trainer with Tuneyard's overrides, all of them in this file:

- batches: their order is a pure function of the step, and a resume sets a position;
- phases of a step: the points at which the kind of work changes, for times by phase;
- saving and evaluation: committed checkpoints, and evaluation that is exact over ranks;
- FLOPs: transformers would visit all parameters at every micro-batch.

Forward, loss, backward, clipping, optimizer, DeepSpeed and DDP are transformers' own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import Trainer

from tuneyard.api import TuneyardError
from tuneyard.data import MixedRowOrder
from tuneyard.parallel import Shards, whole_logits
from tuneyard.parallel.context import MASK, ContextParallel
from tuneyard.parallel.exchange import GradientExchange
from tuneyard.training.context import refuse_unsplit, slice_loss, split_logits, whole_router_loss
from tuneyard.training.distributed import World, gather_objects
from tuneyard.training.evaluation_rows import make_rows
from tuneyard.training.expert_load import ExpertLoad
from tuneyard.training.generators import kept_generators
from tuneyard.training.memory import free_bytes
from tuneyard.training.order import Batches, evaluation_batches
from tuneyard.training.proofs.gradients import GradientProof
from tuneyard.training.proofs.kept_weights import kept_weights
from tuneyard.training.proofs.limit import late_before, limit_before, within
from tuneyard.training.proofs.recomputation import refuse_changed_gradients
from tuneyard.training.proofs.rows import Form, refuse_mixed_rows
from tuneyard.training.proofs.sight import LAST, borders_of, refuse_foresight, refuse_leaks, refuse_short_sight
from tuneyard.training.stopwatch import Lap, Stopwatch
from tuneyard.training.tensor_parallel import clip, engines_told

_SHORT_ROW = 6
SaveCheckpoint = Callable[["SteppedTrainer"], None]


@dataclass(frozen=True, kw_only=True)
class StepAccount:
    """This rank's part of one optimizer step.

    `loss`: this rank's share, still on the device; the mean over ranks is the step's loss. `router_loss`: the same for the loss that
    spreads tokens over experts, before its weight; it is not part of `loss`. `expert_load`: tokens of this rank by layer and expert, on the
    device; None for a dense model. `part_tokens`: tokens of this rank by part of the mixture; empty if the data are no mixture.
    """

    loss: torch.Tensor
    router_loss: torch.Tensor
    expert_load: torch.Tensor | None
    tokens: int
    part_tokens: list[int]
    squares: float
    grad_norm: Any
    learning_rate: float
    figures: torch.Tensor
    """This rank's share of FIGURES, as of `loss`."""


class SteppedTrainer(Trainer):
    """A trainer with Tuneyard's measurement of steps, data, saving and evaluation.

    `prepare_run` must be called before `train`.
    """

    FIGURES: tuple[str, ...] = ()
    """Names of figures of each step, and of each evaluation, beside the loss."""
    tables: Any = None
    """Embedding tables of a ranker, sharded over the ranks. They are no parameters of the model, and are saved beside it."""

    def prepare_run(
        self,
        batches: Batches,
        world: World,
        *,
        load: Callable[[], None],
        save: SaveCheckpoint,
        on_lap: Callable[[Lap], None],
        on_evaluation: Callable[[int, float, Mapping[str, float]], None],
        warn: Callable[[str], None] = lambda _: None,
        router_weight: float = 0.0,
        expert_load: ExpertLoad | None = None,
        mixed: MixedRowOrder | None = None,
        shards: Shards | None = None,
        context: ContextParallel | None = None,
        longest_row: int = 0,
        longest_sample: int = 0,
        exchange: Callable[[SteppedTrainer], GradientExchange | None] = lambda _: None,
        optimizer: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        proves_recomputation: bool = False,
        probing: Callable[[], AbstractContextManager[None]] = nullcontext,
        first_pass: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Set the parts of a run.

        - `load` puts the state of a checkpoint into the prepared model and optimizer; `save` takes a checkpoint.
        - `on_lap` is called at the end of a step, after its saving and evaluation.
        - `on_evaluation` gets a step's held-out loss, and other figures of held-out rows.
        - `warn` gets a warning for people.
        - `router_weight`: see `take_router_loss`. `expert_load`: counts tokens by expert.
        - `mixed`: the order of a mixture, to count its parts.
        - `shards`: this rank's parts of the weights, if the model is cut over a tensor group.
        - `context`: the ranks that hold slices of the same rows, of at most `longest_row` tokens. Batches are then slices.
        - `longest_sample`: tokens of a row in which no token may see the ones after it; 0: a few.
        - `exchange`: takes over the averaging of gradients, once the model is wrapped.
        - `optimizer`: class and settings of an optimizer that transformers does not have.
        - `first_pass`: the context of the tests before the first step, and of that step, in which errors of libraries are told.
        - `proves_recomputation`: compare gradients with and without recomputation before the first step.
        - `probing`: how the model is looked at before the first step.
        """
        self.batches = batches
        self.world = world
        self.shards = shards
        self.load = load
        self.save = save
        self.on_lap = on_lap
        self.on_evaluation = on_evaluation
        self._warn = warn
        self.router_weight = router_weight
        self.expert_load = expert_load
        self.mixed = mixed
        self.context = context
        self.longest_row = longest_row
        self.longest_sample = longest_sample
        if context is not None:
            self.compute_loss_func = slice_loss
        self.exchange: GradientExchange | None = None
        if optimizer is not None:
            self.optimizer_cls_and_kwargs = optimizer
        self._take_exchange = exchange
        self.proves_recomputation = proves_recomputation
        self._probing = probing
        self._first_pass = first_pass
        self._proof: GradientProof | None = None
        self._router_share = torch.zeros((), device=self.args.device)
        self.watch = Stopwatch(self.args.device)
        self._last_lap = batches.start
        self._begin_step()

    def _begin_step(self) -> None:
        self._step_loss = torch.zeros((), device=self.args.device)
        self._step_router_loss = torch.zeros((), device=self.args.device)
        self._step_figures = torch.zeros(len(self.FIGURES), device=self.args.device)
        self._step_tokens = 0
        self._step_squares: float = 0
        self._step_part_tokens = [0] * (self.mixed.parts if self.mixed is not None else 0)

    # Data

    def get_train_dataloader(self) -> DataLoader:
        return self._loader(self.train_dataset, self.batches)

    def _loader(self, dataset: Any, batches: Any) -> DataLoader:
        workers = self.args.dataloader_num_workers
        # The loader has its own generator: a seed from the global one would shift dropout after a resume.
        return DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=workers,
            pin_memory=self.args.device.type == "cuda",
            generator=torch.Generator(),
        )

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        self.watch.mark("data")
        try:
            batches = [batch for _, batch in zip(range(num_batches), epoch_iterator, strict=False)]
        except (RuntimeError, TuneyardError):
            if self.args.dataloader_num_workers:  # torch adds the trace of a loader's process to the message
                self._read_again(num_batches)
            raise
        self.watch.mark("other")
        for micro, batch in enumerate(batches):
            tokens = batch.pop("tokens")
            self._step_tokens += sum(tokens)
            self._step_squares += batch.pop("squares")
            if self.mixed is not None:
                for row, count in zip(self.batches.micro(self.state.global_step, micro), tokens, strict=True):
                    self._step_part_tokens[self.mixed.part_of(row)] += count
        return batches, self._get_num_items_in_batch(batches, device)

    def _read_again(self, micro_batches: int) -> None:
        """Read the rows of the step in this process. It meets the loader's error, and raises it unchanged."""
        for micro in range(micro_batches):
            for row in self.batches.micro(self.state.global_step, micro):
                self.train_dataset[row]

    # Phases of a step

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        self.watch.mark("other")
        if self._proof is None:
            loss = super().training_step(model, inputs, num_items_in_batch)
        else:
            with self._first_pass(), self._proof.backward():
                loss = super().training_step(model, inputs, num_items_in_batch)
        self._step_loss += loss - self.router_weight * self._router_share
        self._step_router_loss += self._router_share
        if self.accelerator.gradient_state.sync_gradients:
            self._finish_proof()
            self.watch.mark("optimizer")
        return loss

    def _finish_proof(self) -> None:
        """At the end of the first step. Raises BadInput for weights that would not be trained."""
        if self._proof is None:
            return
        unreached = self._proof.finish(self.model_wrapped, self._loss_of_short_row if self._weights_are_whole() else None)
        self._proof = None
        if unreached is not None:
            self._warn(unreached)

    def _weights_are_whole(self) -> bool:
        """Whether this rank can compute a loss by itself, without the engine."""
        return self.shards is None and self.context is None and not any(hasattr(weight, "ds_id") for weight in self.model.parameters())

    def _loss_of_short_row(self, engine: Any = None) -> torch.Tensor:
        """The loss, computed by the model alone, or by the engine that gathers its weights."""
        ids = torch.arange(_SHORT_ROW, device=self.args.device)[None]
        with kept_generators(), self.compute_loss_context_manager():  # dropout of the next step draws what it would have drawn
            loss: torch.Tensor = (engine or self.model)(input_ids=ids, labels=ids).loss
        return loss

    def loss_of(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """The loss of a micro-batch for the gradient. Without `num_items_in_batch`: its mean, for evaluation."""
        return self.loss_and_outputs(model, inputs, num_items_in_batch)[0]

    def loss_and_outputs(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> tuple[torch.Tensor, Any]:
        """As `loss_of`, with the outputs of the model."""
        found: tuple[torch.Tensor, Any] = super().compute_loss(model, inputs, True, num_items_in_batch)
        return found

    def measured(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """The mean loss of a batch of held-out rows, and its FIGURES."""
        return self.loss_of(model, inputs)[None]

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:  # noqa: ARG002
        self.watch.mark("forward")
        if self.expert_load is not None:
            self.expert_load.begin(inputs.get("attention_mask") if self.context is None else self.context.own(inputs[MASK]))
        if self.router_weight:
            loss = self._loss_with_router(model, inputs, num_items_in_batch)
        else:
            loss = self.loss_of(model, inputs, num_items_in_batch)
        if self.expert_load is not None:
            self.expert_load.end()
        self.watch.mark("backward")
        return loss

    def _loss_with_router(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any) -> torch.Tensor:
        """The loss with the router's loss, which is a mean over the tokens of a micro-batch. If the other loss is already scaled for the
        global batch, the router's loss is divided by the micro-batches here; else transformers divides both.
        """
        loss, outputs = self.loss_and_outputs(model, {**inputs, "output_router_logits": True}, num_items_in_batch)
        if outputs.aux_loss is None:  # a class that supports experts, with a configuration without any (Doge)
            self.router_weight = 0.0
            return loss
        balance = outputs.aux_loss
        if self.context is not None:
            balance = whole_router_loss(self.model, outputs.router_logits, inputs[MASK], self.context)
        router = balance / (1 if num_items_in_batch is None else self.current_gradient_accumulation_steps)
        self._router_share = router.detach() / (self.current_gradient_accumulation_steps if num_items_in_batch is None else 1)
        return loss + self.router_weight * router.to(loss.device)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        with engines_told(self.accelerator, self.world):
            prepared = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        if self.is_deepspeed_enabled:
            # accelerate calls the engine's step inside backward: without this wrapper its time would count as backward.
            engine, step = self.deepspeed, self.deepspeed.step

            def timed_step() -> None:
                self.watch.mark("optimizer")
                step()

            engine.step = timed_step
        self.exchange = self._take_exchange(self)
        self.load()
        self._probe()
        return prepared

    def _probe(self) -> None:
        """Test the model before its first step, and have its gradients proven in that step. Raises BadInput, and JobFailed if it hangs."""
        limit = limit_before(self.model, max(self.longest_row, self.longest_sample), self.args.device)
        with self._first_pass():
            within(limit, self._prove, late_before(limit), self.args.device)
        self._proof = GradientProof(self.model)

    def _prove(self) -> None:
        half = self.args.bf16 or self.args.fp16
        with self._probing(), kept_weights(self.model):
            self._probe_sight()
            if self.proves_recomputation and self.args.gradient_checkpointing and self.shards is None and self.context is None:
                in_parts = not self._weights_are_whole()
                loss_of = partial(self._loss_of_short_row, self.model_wrapped if in_parts else None)
                free = min(gather_objects(self.world, free_bytes(self.args.device)))
                refuse_changed_gradients(self.model, loss_of, half=half, memory_bytes=free)

    def _probe_sight(self) -> None:
        """Raises BadInput for a model whose tokens see tokens that they must not see, on one device or in slices of rows."""
        embeddings = self.model.get_input_embeddings()
        vocabulary = int(getattr(embeddings, "base_layer", embeddings).num_embeddings)  # an adapter may wrap them
        packed = self.is_packed
        context = self.context
        collate = self._collate_whole_rows
        half = self.args.bf16 or self.args.fp16

        def refuse_sight(logits_of: Callable[[dict[str, Any]], torch.Tensor]) -> None:
            refuse_foresight(logits_of, vocabulary)
            if packed:
                refuse_leaks(logits_of, collate, vocabulary)

        if context is None:
            refuse_sight(self._logits_of)
            if self.longest_sample > LAST:
                refuse_foresight(self._last_logits_of, vocabulary, self.longest_sample)
            if packed:
                borders = borders_of(self.model.config)
                refuse_short_sight(self._last_logits_of, collate, vocabulary, borders, self.longest_row, half=half)
        with nullcontext() if context is None else context.whole_rows():
            rows = self.args.per_device_train_batch_size
            refuse_mixed_rows(self._training_logits_of, collate, vocabulary, rows, self._form, half=half)
            if context is not None:
                refuse_sight(self._logits_of)
        if context is None:
            return
        refuse_unsplit(self._logits_of, context, vocabulary, self.longest_row, packed=packed)
        refuse_sight(partial(split_logits, self._logits_of, context))

    @property
    def _collate_whole_rows(self) -> Callable[[list[Any]], dict[str, Any]]:
        """The collator, without slices of rows."""
        collate: Callable[[list[Any]], dict[str, Any]] = self.data_collator if self.context is None else self.data_collator.whole
        return collate

    @property
    def _form(self) -> Form:
        return "packed" if self.is_packed else "plain"

    @property
    def is_packed(self) -> bool:
        """Whether the model gets rows of several samples."""
        return "position_ids" in self.train_dataset.column_names

    def logits_of_row(self, ids: list[int]) -> torch.Tensor:
        """Logits (tokens, vocabulary) of one row by the model as it is. Collective."""
        inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        with kept_weights(self.model), self.context.whole_rows() if self.context is not None else nullcontext():
            return self._logits_of(inputs)[0]

    def _last_logits_of(self, inputs: dict[str, Any]) -> torch.Tensor:
        """At least the logits of the last tokens. Those of a long row would be large."""
        model = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        few = "logits_to_keep" in inspect.signature(model.forward).parameters
        return self._logits_of({**inputs, **({"logits_to_keep": LAST} if few else {})})

    def _logits_of(self, inputs: dict[str, Any]) -> torch.Tensor:
        model = self.model_wrapped
        model.eval()
        with torch.no_grad(), self.compute_loss_context_manager():
            logits: torch.Tensor = model(**self._prepare_inputs(inputs)).logits
            if self.shards is not None:
                logits = whole_logits(self.model, logits)
        model.train()
        return logits

    def _training_logits_of(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Logits in training mode, with the random numbers of the next step. Nothing of the pass stays, statistics included."""
        self.model_wrapped.eval()
        self.model.train()  # engines stay as they are for an evaluation
        kept = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        with torch.no_grad(), kept_generators(), self.compute_loss_context_manager():
            logits: torch.Tensor = self.model_wrapped(**self._prepare_inputs(inputs)).logits
            if self.shards is not None:
                logits = whole_logits(self.model, logits)
            for buffer, before in kept:
                buffer.copy_(before)
        self.model_wrapped.train()
        return logits

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        started = super()._init_training_state(*args, **kwargs)
        self.state.global_step = self.batches.start
        return started

    def get_tp_size(self) -> int:
        """Ranks that read the same rows. transformers divides the tokens that it has gathered from all ranks by this number."""
        return self.world.mesh.tensor

    def _clip_grad_norm(self, model: Any) -> Any:
        return self._clip(model, self.args.max_grad_norm)

    def _clip(self, model: Any, max_norm: float) -> Any:
        if self.shards is None or self.is_deepspeed_enabled:
            return self.accelerator.clip_grad_norm_(model.parameters(), max_norm)
        self.accelerator.unscale_gradients()
        return clip(model.parameters(), max_norm, self.world)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if grad_norm is None and self.shards is not None:
            grad_norm = self._clip(model, float("inf"))
        self._step_grad_norm = super()._get_grad_norm(model, grad_norm)
        self._step_learning_rate = self._get_learning_rate()
        return self._step_grad_norm

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:  # noqa: ARG002 - transformers' signature
        return 0

    def account_step(self) -> StepAccount:
        """The account of the step that has just ended; begins the next account."""
        account = StepAccount(
            loss=self._step_loss,
            router_loss=self._step_router_loss,
            expert_load=None if self.expert_load is None else self.expert_load.take(),
            tokens=self._step_tokens,
            part_tokens=self._step_part_tokens,
            squares=self._step_squares,
            grad_norm=self._step_grad_norm,
            learning_rate=self._step_learning_rate,
            figures=self._step_figures,
        )
        self._begin_step()
        return account

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self.watch.mark("other")
        super()._maybe_log_save_evaluate(*args, **kwargs)
        if self.state.global_step > self._last_lap:  # transformers calls this once more at the end of an epoch
            self._last_lap = self.state.global_step
            self.on_lap(self.watch.lap())

    # Saving and evaluating

    def _save_checkpoint(self, model: Any, trial: Any) -> None:  # noqa: ARG002 - transformers' signature
        self.watch.mark("checkpoint")
        self.save(self)
        self.watch.mark("other")

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> dict[str, float]:  # noqa: ARG002
        """Mean loss over the tokens (or preference pairs) that count in the evaluation set, exact over any number of ranks."""
        dataset = eval_dataset if eval_dataset is not None else self.eval_dataset
        self.watch.mark("evaluation")
        make_rows(dataset, self.world)
        rows = evaluation_batches(len(dataset), self.args.per_device_eval_batch_size, self.batches.rank, self.batches.workers)
        # A rank without rows left still takes part in the collectives of a forward pass: it repeats a row, with weight 0.
        loader = self._loader(dataset, [batch or [0] for batch in rows])
        totals = torch.zeros(2 + len(self.FIGURES), dtype=torch.float64, device=self.args.device)
        model = self.model_wrapped
        model.eval()
        with torch.no_grad(), kept_weights(self.model):
            for batch, indices in zip(loader, rows, strict=True):
                batch.pop("tokens"), batch.pop("squares")
                batch = self.acted(batch)
                weight = self.weight_of(batch) if indices else 0
                means = self.measured(model, self._prepare_inputs(batch)).double()
                if weight:
                    totals += torch.cat([means * weight, torch.full_like(totals[:1], weight)])
        model.train()
        if self.args.world_size > 1:
            torch.distributed.all_reduce(totals)
        loss, *figures = (totals[:-1] / totals[-1].clamp(min=1)).tolist()
        metrics = {f"{metric_key_prefix}_loss": loss}
        others = self.figures_of_rows()
        self.watch.mark("other")
        self.on_evaluation(self.state.global_step, loss, {**dict(zip(self.FIGURES, figures, strict=True)), **others})
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def acted(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch as its loss gets it."""
        return batch

    def figures_of_rows(self) -> Mapping[str, float]:
        """Figures of the evaluation set that are no means over batches. Collective."""
        return {}

    def weight_of(self, batch: dict[str, Any]) -> float:
        """Weight of a batch in the mean: its predicted tokens that count."""
        return int((batch["labels"][:, 1:] != -100).sum())
