"""One attempt at a train task with a program, in one rank: the differences from an attempt at a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tuneyard import data
from tuneyard.api import BadInput
from tuneyard.planning import steps_of_epochs
from tuneyard.storage import fetch_folder, open_store
from tuneyard.training.arguments import training_arguments
from tuneyard.training.artifacts import Artifacts
from tuneyard.training.attempt import Attempt
from tuneyard.training.details import figures_of
from tuneyard.training.distributed import gather_objects
from tuneyard.training.material import Material
from tuneyard.training.model_card import program_card
from tuneyard.training.offload_ops import prepare_offload
from tuneyard.training.order import Batches
from tuneyard.training.program.adapter import add_lora
from tuneyard.training.program.artifacts import save_program_artifacts
from tuneyard.training.program.checks import (
    acted,
    loss_of_batch,
    mean_warning,
    refuse_changed_by_cut,
    refuse_differing_weights,
    refuse_untrainable,
)
from tuneyard.training.program.contract import Row
from tuneyard.training.program.cut import cut_of
from tuneyard.training.program.flops import FlopAccount
from tuneyard.training.program.judge import Judge
from tuneyard.training.program.loading import Loaded, load_program
from tuneyard.training.program.module import ProgramModule
from tuneyard.training.program.predictions import write_predictions
from tuneyard.training.program.rows import ProgramCollator, RowsInOrder
from tuneyard.training.program.start import find_program_start, loaded_by_transformers, made_by_program
from tuneyard.training.program.trainer import ProgramTrainer
from tuneyard.training.progress import Progress
from tuneyard.training.request import TrainResult
from tuneyard.training.tensor_parallel import shard
from tuneyard.training.throughput import Throughput

_PROBED_ROWS = 4


class ProgramAttempt(Attempt):
    """Rows instead of tokens, the program's model instead of a language model, its loss instead of an objective."""

    @cached_property
    def loaded(self) -> Loaded:
        """The program, imported in this process. Raises BadInput, on every rank, if it cannot be imported."""
        task = self.request.task
        assert task.program is not None
        copy = Path(self.request.scratch) / "program"
        return load_program(task.program, fetch_folder(task.program_dir, copy) if task.program_dir else copy)

    def _prepare(self) -> Material:
        request, task, plan = self.request, self.request.task, self.request.plan
        prepare_offload(plan, self.world, optimizer=task.optimizer.name, task=request.name, emit=self.emit)
        self._stage("loading the program")
        self._together(lambda: self.loaded)
        self._refuse_without_predict()
        start = find_program_start(request, self.loaded, self.world)
        service = Path(request.streams) if request.streams else None
        prepared = data.prepare_rows(task.data, seed=task.seed, service=service, emit=self.emit, task=request.name)
        if not len(prepared.train):
            raise BadInput(f"{prepared.report.source}: no row is left to train on", "lower data.validationFraction, or add rows")
        for message in prepared.report.warnings():
            self._warn(message)
        steps = task.steps or steps_of_epochs(task.epochs or 1.0, prepared.order.epoch_rows, plan.global_batch)
        batches = Batches(
            rows_at=lambda places: places,  # rows are found by their places in the stream, which their seeds depend on
            micro_batch=plan.micro_batch,
            grad_accum=plan.grad_accum,
            rank=self.world.data_rank,
            workers=self.world.mesh.data,
            start=0,
            stop=steps,
        )
        return Material(start, None, None, prepared, steps, batches)

    def _refuse_without_predict(self) -> None:
        asked = self.request.task.evaluation
        wants = {"evaluation.predictions": asked.predictions, "evaluation.metrics": asked.metrics, "evaluation.samples": asked.samples}
        reasons = [name for name, wanted in {**wants, "its function metrics": self.loaded.measures}.items() if wanted]
        if reasons and not self.loaded.predicts:
            raise BadInput(
                f"{self.request.task.program} has no function predict, and {' and '.join(reasons)} asks for predictions",
                "add predict(model, batch)",
            )

    def _build_trainer(self, material: Material) -> ProgramTrainer:
        request, task, plan = self.request, self.request.task, self.request.plan
        collator = ProgramCollator(self.loaded)
        rows = RowsInOrder(material.data.train, task.seed, material.data.order)
        validation = material.data.validation
        held_out = RowsInOrder(validation, task.seed) if validation is not None else None
        made = self._together(lambda: made_by_program(request, self.loaded, material.start))
        if made is not None:
            refuse_differing_weights(self.world, made, self.loaded.name)
            self._adapt(made)
            self._probe(ProgramModule(self.loaded, made), rows.__getitems__(range(plan.micro_batch)), collator)
        arguments = training_arguments(task, plan, steps=material.steps, scratch=self.scratch)
        # A process is a rank. On a machine with several GPUs, transformers would spread a single rank over all of them (DataParallel).
        arguments._n_gpu = min(arguments.n_gpu, 1)
        model = made if made is not None else loaded_by_transformers(request, self.loaded, material.start)
        if made is None:
            self._adapt(model)
        module = ProgramModule(self.loaded, model)
        first = collator(rows.__getitems__(range(plan.micro_batch)))
        if made is None and plan.zero != 3:
            self._probe(module, rows.__getitems__(range(plan.micro_batch)), collator)
        flops, acts = FlopAccount(), FlopAccount()
        if plan.tensor_parallel > 1 and self.loaded.acts:
            with acts.counting(first):  # while the model is whole
                first = acted(module, first)
            acts.close()
        cut = cut_of(module, first, plan.tensor_parallel, task.layout.sharding_rules)
        if cut is not None:
            flops.count(module, first)  # while the model is whole
            module.eval()
            whole, _ = loss_of_batch(module, first)
            self.shards = shard(module, cut, self.world)
            self._together(lambda: refuse_changed_by_cut(module, first, whole))
        judge = None
        if held_out is not None:
            judge = Judge(self.loaded, task.evaluation, self.world, open_store(request.output), self._warn)
        elif self.loaded.measures:
            self._warn(f"{self.loaded.name} has metrics, and no rows are held out for them: set data.validationFraction")
        given = {"data_collator": collator, "train_dataset": rows, "eval_dataset": held_out}
        return ProgramTrainer(model=module, args=arguments, flops=flops, acts=acts, judge=judge, **given)

    def _adapt(self, model: Any) -> None:
        """Put the task's adapter into the model."""
        adapter = self.request.task.method.lora
        if adapter is not None:
            self._together(lambda: add_lora(model, adapter, self.request.task.seed, self.loaded.name))

    def _probe(self, module: ProgramModule, rows: Sequence[Row], collator: ProgramCollator) -> None:
        """Raises BadInput, on every rank, for a loss that cannot be trained. Warns of a loss that depends on how batches are cut. The rows
        are those of the first step, the same on every rank.
        """
        said = self._together(lambda: self._probed(module, rows, collator))
        if said is not None:
            self._warn(said)

    @staticmethod
    def _probed(module: ProgramModule, rows: Sequence[Row], collator: ProgramCollator) -> str | None:
        refuse_untrainable(module, acted(module, collator(rows)))
        return mean_warning(module, rows[:_PROBED_ROWS], collator)

    def _together(self, work: Any) -> Any:
        """The result of `work`, or, on all ranks, the first error of any rank: if one rank ended alone, the others would wait for it."""
        answer: Any = None
        error: BadInput | None = None
        try:
            answer = work()
        except BadInput as raised:
            error = raised
        for rank, other in enumerate(gather_objects(self.world, error)):
            if other is not None:
                raise other if rank == self.world.rank or error is None else error
        return answer

    def _save_model_files(self, trainer: Any, material: Material) -> None:
        """Nothing: only the program can load its weights, and `tuneyard checkpoints convert` says so."""

    def _throughput(self, trainer: Any, progress: Progress, peak: float) -> Throughput:  # noqa: ARG002 - as of Attempt
        return Throughput(progress, lambda rows, flops_per_row: rows * flops_per_row, peak, unit="rows")

    def _made_by(self) -> dict[str, Any]:
        return {**super()._made_by(), "program": self.request.task.program}

    def _save(self, trainer: Any, _material: Material, progress: Progress, throughput: Throughput) -> Artifacts:
        self._stage("saving the model")
        figures = figures_of(self.request.plan, progress, throughput)
        card = program_card(self.request, figures | progress.figures_of_result())
        artifacts = save_program_artifacts(trainer, self.loaded, self.request, self.world, card)
        if self.request.task.evaluation.predictions:
            self._stage("predicting held-out rows")
            self._predictions = write_predictions(trainer, self.request)
        return artifacts

    def _result(self, *args: Any, **kwargs: Any) -> TrainResult:
        """The result with rows in `details`: rates and sums of tokens are for language models."""
        found = super()._result(*args, **kwargs)
        figures = args[2].figures_of_result()
        details = found.details | {"program": self.request.task.program, "rows": found.tokens, "rows_per_s": found.tokens_per_s}
        if figures:
            details["metrics"] = figures
        if hasattr(self, "_predictions"):
            details["predictions"] = self._predictions
        return replace(found, tokens=0, tokens_per_s=0.0, details=details)
