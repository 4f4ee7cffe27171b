"""One attempt at a rank task, in one rank: the differences from training by a program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from transformers import set_seed

from tuneyard import data
from tuneyard.api import BadInput, RankTask, Transform
from tuneyard.data.holdout import held_out_items
from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.report import DataReport
from tuneyard.data.stream.windows import Windows
from tuneyard.data.streaming import StreamedOrder
from tuneyard.data.tables import Pipeline
from tuneyard.planning import steps_of_epochs
from tuneyard.ranking import FlatRows, Measured, RankerProgram, config_of_task, measured, stored_rows, training_steps
from tuneyard.ranking.stream import StreamedTable, open_table_stream
from tuneyard.tracking.events import Stage
from tuneyard.training.arguments import training_arguments
from tuneyard.training.artifacts import Artifacts
from tuneyard.training.details import figures_of
from tuneyard.training.distributed import broadcast_object
from tuneyard.training.material import Material
from tuneyard.training.model_card import ranker_card
from tuneyard.training.offload_ops import prepare_offload
from tuneyard.training.order import Batches
from tuneyard.training.program.attempt import ProgramAttempt
from tuneyard.training.program.flops import FlopAccount
from tuneyard.training.program.loading import Loaded
from tuneyard.training.program.module import ProgramModule
from tuneyard.training.progress import Progress
from tuneyard.training.rank.artifacts import save_ranker
from tuneyard.training.rank.heap import keep_freed_memory
from tuneyard.training.rank.rows import BatchesOfRows, OrderInBlocks, as_made
from tuneyard.training.rank.tables import close_tables, load_account, placed_tables, refuse_too_large
from tuneyard.training.rank.trainer import RankTrainer, shown_slices
from tuneyard.training.request import TrainResult
from tuneyard.training.throughput import Throughput

_OF_HELD_OUT = "held-out rows: "
_LONGEST_STEP = 300
"""Characters of a transform, or of all statistics, in a checkpoint's description of its task."""


class RankAttempt(ProgramAttempt):
    """Rows of a table, a ranker with sharded tables, and figures of held-out rows."""

    @cached_property
    def rank_task(self) -> RankTask:
        assert self.request.rank is not None
        return self.request.rank

    @cached_property
    def steps(self) -> Pipeline:
        """The transforms of training rows."""
        return training_steps(self.rank_task)

    @cached_property
    def statistics(self) -> dict[str, dict[str, Any]]:
        """Of each column that is normalized by the training rows, for the report."""
        return {}

    @cached_property
    def loaded(self) -> Loaded:
        return Loaded("the ranker", RankerProgram(config_of_task(self.rank_task), self.rank_task.negative_rate), Path(), ())

    def run(self) -> TrainResult:
        try:
            return super().run()
        finally:
            if hasattr(self, "trainer"):
                close_tables(self.trainer.tables)

    def _prepare(self) -> Material:
        request, task, plan = self.request, self.request.task, self.request.plan
        prepare_offload(plan, self.world, optimizer=task.optimizer.name, task=request.name, emit=self.emit)
        self._measure()
        prepared = self._together(self._prepared)
        for message in prepared.report.warnings():
            self._warn(message)
        steps = task.steps or steps_of_epochs(task.epochs or 1.0, prepared.order.epoch_rows, plan.global_batch)
        batches = Batches(
            rows_at=lambda places: places,  # places in the stream: `BatchesOfRows` finds the rows
            micro_batch=plan.micro_batch,
            grad_accum=plan.grad_accum,
            rank=self.world.data_rank,
            workers=self.world.mesh.data,
            start=0,
            stop=steps,
        )
        return Material("", None, None, prepared, steps, batches)

    def _measure(self) -> None:
        """Collective. Give the ranker's transforms the mean and variance of training rows, if they normalize. Raises BadInput."""
        task, program = self.rank_task, self.loaded.program
        if not self.steps.measured:
            return
        self._stage("measuring columns")
        how: Any = {"limit": task.table.limit, "held_out": (task.validation_fraction, task.seed), "sampled": task.is_streamed}

        def first_rank_measures() -> Measured | None:
            tell = self._telling("measuring columns")
            return measured(task.table.source or "", program.config, self.steps, on_rows=tell, **how) if self.world.is_first else None

        found: Measured = broadcast_object(self.world, self._together(first_rank_measures))
        self.steps, self.statistics = found.steps, found.about
        program.config = replace(program.config, transforms=found.steps.without_sampling)

    def _prepared(self) -> data.Prepared:
        """Training rows and held-out rows. Raises BadInput."""
        self._stage("reading rows")
        refuse_too_large(self.rank_task, self.loaded.program.config, self.world)
        return self._prepared_stream() if self.rank_task.is_streamed else self._prepared_whole()

    def _prepared_whole(self) -> data.Prepared:
        task = self.rank_task
        rows = self._stored(task.table.source or "", task.table.limit, self.steps)
        self._know_texts(rows)
        said, held_out = rows.warnings(), self._validation()
        size_bytes = sum(array.nbytes for array in rows.arrays.values())
        if held_out is not None:
            said += [f"{_OF_HELD_OUT}{warning}" for warning in held_out.warnings() if warning not in said]
        elif task.validation_fraction:
            aside = held_out_items(rows.hashes, task.validation_fraction, task.seed)
            rows, held_out = rows.select(np.flatnonzero(~aside)), rows.select(np.flatnonzero(aside))
        if not len(rows):
            raise BadInput(f"{task.table.source}: no row is left to train on", "lower validationFraction, or add rows")
        samples = len(rows) + (len(held_out) if held_out is not None and task.validation is None else 0)
        if task.negative_rate < 1:
            rows = self._drawn(rows)
        if held_out is not None and not len(held_out):
            raise BadInput(f"{task.table.source}: all rows are equal, so that none can be held out", "leave validationFraction out")
        report = replace(self._report(rows, held_out, said), samples=samples)
        order = PreparedOrder(Windows.over([size_bytes], task.seed, shuffle=task.shuffle), (len(rows),))
        return data.Prepared(BatchesOfRows(rows, OrderInBlocks(order)), _batches(held_out), report, False, order, content=rows.content())

    def _prepared_stream(self) -> data.Prepared:
        """Read footers, the held-out table and the first window."""
        task, request = self.rank_task, self.request
        service = Path(request.streams) if request.streams else None
        how: Any = {"seed": task.seed, "shuffle": task.shuffle, "limit": task.table.limit, "service": service}
        rows = open_table_stream(task.table.source or "", self.loaded.program.config, **how)
        self._know_texts(rows)
        held_out = self._validation()
        if rows.ids_per_row:
            self._stage(f"streaming {len(rows):,} rows an epoch")
        said = rows.warnings()
        if held_out is not None:
            said += [f"{_OF_HELD_OUT}{warning}" for warning in held_out.warnings() if warning not in said]
        report = replace(self._report(rows, held_out, said), streamed=True, epoch_rows=len(rows))
        order = StreamedOrder(rows)
        return data.Prepared(BatchesOfRows(rows), _batches(held_out), report, False, order, streams=(("", rows),))

    def _know_texts(self, rows: FlatRows | StreamedTable) -> None:
        """Remember which features are texts: held-out rows, and tables to score, must have the same."""
        program = self.loaded.program
        program.config = program.config.with_texts(rows.texts, rows.text_inputs)

    def _validation(self) -> FlatRows | None:
        """The table of held-out rows; None if the task has none."""
        validation = self.rank_task.validation
        return None if validation is None else self._stored(validation.source or "", validation.limit)

    def _report(self, rows: FlatRows | StreamedTable, held_out: FlatRows | None, notes: list[str]) -> DataReport:
        task = self.rank_task
        return DataReport(
            source=task.table.source or "",
            format="table",
            why="a ranker reads columns",
            files=0,
            samples=len(rows),
            rows=len(rows),
            validation_rows=len(held_out) if held_out is not None else 0,
            max_length=0,
            packed=False,
            notes=notes,
        )

    def _drawn(self, rows: FlatRows) -> FlatRows:
        """The training rows after negatives are drawn. Raises BadInput if none is left."""
        task = self.rank_task
        drawn = rows.with_negatives(task.negative_rate, task.seed)
        if not (drawn.batch(np.arange(len(drawn)))["labels"] == 0).any():
            raise BadInput(
                f"{task.table.source}: negativeRate {task.negative_rate:g} leaves no row with label 0", "raise negativeRate, or add rows"
            )
        return drawn

    def _stored(self, uri: str, limit: int | None, steps: Pipeline | None = None) -> FlatRows:
        config, slices = self.loaded.program.config, self.rank_task.slices
        return stored_rows(uri, config, steps=steps, slices=slices, limit=limit, on_rows=self._telling("reading rows"))

    def _telling(self, stage: str) -> Callable[[int, int], None]:
        """Reports the progress of a stage: rows that are done, of all."""
        return lambda done, of: self.emit(Stage(task=self.request.name, name=stage, done=done, of=of, unit="rows"))

    def _build_trainer(self, material: Material) -> RankTrainer:
        task, plan = self.request.task, self.request.plan
        arguments = training_arguments(task, replace(plan, recompute=False), steps=material.steps, scratch=self.scratch)
        # A process is a rank: alone on a machine with several GPUs, transformers would spread it over all of them (DataParallel).
        arguments._n_gpu = min(arguments.n_gpu, 1)
        if arguments.use_cpu:
            keep_freed_memory()
            if arguments.optim == "adamw_torch" and arguments.deepspeed is None:
                arguments.optim = "adamw_torch_fused"  # the same update; one by one, small parameters would cost a small batch its time
        self._stage("placing tables")
        rows, config = material.data.train.rows, self.loaded.program.config
        tables = placed_tables(self.rank_task, config, rows, self.world, grad_accum=plan.grad_accum)
        set_seed(task.seed)  # seeds the dense weights: tables have their own generators
        ranker = self.loaded.program.starting(config.build(tables))
        ranker.recompute = plan.recompute
        self.trainer = RankTrainer(
            model=ProgramModule(self.loaded, ranker),
            args=arguments,
            data_collator=as_made,
            train_dataset=material.data.train,
            eval_dataset=material.data.validation,
            flops=FlopAccount(by=lambda batch: batch["labels"].shape[0]),
            tables=tables,
            slices=self.rank_task.slices,
            learning_rate=self.rank_task.tables.learning_rate,
        )
        return self.trainer

    def _made_by(self) -> dict[str, Any]:
        task, model = self.rank_task, self.rank_task.model
        tables = {f"table of {each.name}": f"{each.rows} rows, {each.length or each.pooling}" for each in task.features.sparse}
        return {name: value for name, value in super()._made_by().items() if name != "program"} | {
            **({"rows": "streamed"} if task.is_streamed else {}),
            "labels": ", ".join(task.labels),
            "transforms": "; ".join(map(_described, task.transforms)) or None,  # None: as in checkpoints without transforms
            "normalized": self._normalized(),
            "share of rows with label 0": task.negative_rate if task.negative_rate < 1 else None,
            "dense features": ", ".join(task.features.dense),
            "sparse features": len(task.features.sparse),
            **tables,
            "layers": "; ".join(" + ".join(modules) for modules in model.layers),
            "ensemble": None if model.ensemble == "concatenation" else model.ensemble,  # None: as in checkpoints without others
            "outputs": model.outputs,
            "width": model.width,
            "hidden": ", ".join(map(str, model.hidden)),
            "table rows": task.tables.rows,
            "learning rate of tables": task.tables.learning_rate,
        }

    def _normalized(self) -> str | None:
        """Mean and variance of each column that is normalized by the training rows; None, as in older checkpoints, without one."""
        found = "; ".join(f"{name} {each['mean']!r}, {each['variance']!r}" for name, each in self.statistics.items())
        return _short(found, "statistics") or None

    def _save(self, trainer: Any, _material: Material, progress: Progress, throughput: Throughput) -> Artifacts:
        self._stage("saving the ranker")
        card = ranker_card(self.request, figures_of(self.request.plan, progress, throughput) | trainer.last_figures)
        return save_ranker(trainer, self.request, self.world, card)

    def _result(self, status: str, material: Material, progress: Progress, *args: Any) -> TrainResult:
        found = super()._result(status, material, progress, *args)
        details = {name: value for name, value in found.details.items() if name != "program"}
        return replace(found, details=details | self._about() | self._about_stream(material, details["data"]))

    def _about_stream(self, material: Material, about: Mapping[str, Any]) -> dict[str, Any]:
        """`data` of a report, with findings that are complete only after a whole pass over a streamed table. They are reported now,
        once.
        """
        if not material.data.streams:
            return {}
        report = material.data.report
        notes = material.data.train.rows.warnings()
        for message in notes:
            if message not in report.notes:
                self._warn(message)
        held_out = [note for note in report.notes if note.startswith(_OF_HELD_OUT)]
        return {"data": {**about, "validation_rows": report.validation_rows, "notes": [*notes, *held_out]}}

    def _about(self) -> dict[str, Any]:
        """Facts about a ranker for the report, beside those of all training."""
        slices = {label: shown_slices(figures) for label, figures in self.trainer.judged.items() if figures.slices}
        normalized = {"normalized": self.statistics} if self.statistics else {}
        return {"tables": load_account(self.trainer.tables.placement), **normalized, **({"slices": slices} if slices else {})}


def _batches(rows: FlatRows | None) -> BatchesOfRows[FlatRows] | None:
    return None if rows is None else BatchesOfRows(rows)


def _described(step: Transform) -> str:
    """A step in words; a long mapping or list of borders by its hash."""
    return _short(json.dumps(step.as_step(), sort_keys=True), step.op)


def _short(text: str, name: str) -> str:
    """A text; a long one as its name and hash."""
    return text if len(text) <= _LONGEST_STEP else f"{name} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
