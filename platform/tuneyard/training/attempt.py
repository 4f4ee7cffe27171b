"""One attempt at a train task, in one rank: load, prepare, train, save, return the result. Each step has its own file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from transformers import PrinterCallback

from tuneyard import data
from tuneyard.api import BadInput
from tuneyard.api.resuming import Effect, changes, settings_of
from tuneyard.catalog import gpu
from tuneyard.parallel import Shards
from tuneyard.parallel.context import ContextParallel
from tuneyard.parallel.exchange import GradientExchange
from tuneyard.storage import Commit, Holder
from tuneyard.storage.marks import changed_marks
from tuneyard.tracking.events import Emit, Evaluated, MachineUsed, Stage, Warned
from tuneyard.training.arguments import optimizer_of
from tuneyard.training.artifacts import Artifacts, Beside, save_artifacts
from tuneyard.training.checkpoint.checkpoints import Checkpoints
from tuneyard.training.checkpoint.loading import Restored, load, load_weights, rate_words
from tuneyard.training.checkpoint.model_files import save_model_files
from tuneyard.training.checkpoint.state import seed_random
from tuneyard.training.choosing import choose_trainer
from tuneyard.training.compiled_layers import compiled_layers, uncompiled
from tuneyard.training.details import best_of, details_of, exchange_of, figures_of, machines_of
from tuneyard.training.distributed import World, barrier, gather_objects
from tuneyard.training.early_stop import BestEvaluation, Cadence
from tuneyard.training.expert_load import ExpertLoad
from tuneyard.training.first_rank import made_on_first
from tuneyard.training.flops import flops_of, peak_flops
from tuneyard.training.gradients import exchange_gradients
from tuneyard.training.ledger import Ledger
from tuneyard.training.machine_use import MachineUse
from tuneyard.training.material import Material, prepare_material
from tuneyard.training.memory import LibraryMemory, host_peak_gb, peak_gb, reserved_gb, reset_peak
from tuneyard.training.model_card import model_card
from tuneyard.training.progress import Progress
from tuneyard.training.proofs.before import Before
from tuneyard.training.proofs.first_pass import first_pass
from tuneyard.training.proofs.saved import SavedProof
from tuneyard.training.provenance.certificate import Origins, base_marks
from tuneyard.training.request import TrainRequest, TrainResult
from tuneyard.training.stop import StopRequest
from tuneyard.training.throughput import Throughput
from tuneyard.training.trainer import SteppedTrainer

_LAST_SAVE_S = 60.0
"""After a failure, seconds for a running save to finish."""


class Attempt:
    """One attempt in one rank."""

    def __init__(self, request: TrainRequest, world: World, stop: StopRequest, emit: Emit) -> None:
        self.request = request
        self.world = world
        self.context: ContextParallel | None = None
        self.stop = stop
        self.emit = emit
        self.scratch = Path(request.scratch)
        self.began = time.perf_counter()
        self.router_weight = 0.0
        self.expert_load: ExpertLoad | None = None
        self.shards: Shards | None = None
        self.exchange: GradientExchange | None = None
        self.proven: dict[str, Any] = {}
        self.commits: tuple[Commit, ...] = ()
        self.before: Before | None = None
        self.base: dict[str, str] = {}
        self.use = MachineUse(ranks=world.local_size, gpus=world.device.type == "cuda")
        self.resumed: Mapping[str, Any] | None = None

    def run(self) -> TrainResult:
        """Run the attempt. Raises BadInput if another job is writing to the output."""
        reset_peak(self.world.device)
        self.libraries = LibraryMemory()
        checkpoints = self._checkpoints()
        request = self.request
        holder = Holder.this_process(job=request.job, attempt=request.attempt, run=request.run)
        checkpoints.open(holder, on_lost=self.stop.set)
        try:
            result = self._run(checkpoints)
        except BaseException:
            checkpoints.close(patience_s=_LAST_SAVE_S)
            raise
        checkpoints.close()
        return result

    def _run(self, checkpoints: Checkpoints) -> TrainResult:
        self.resumed = checkpoints.newest() if self.request.resume else None
        material = self._prepare()
        trainer = self._build_trainer(material)
        # After loading: only then are all files of a Hugging Face name here.
        self.base = made_on_first(self.world, lambda: base_marks(self.request, material.start))
        self._save_model_files(trainer, material)
        restored = None
        if self.request.resume:
            restored = checkpoints.restore()
        else:
            checkpoints.start_anew()
        if restored is not None:
            self._place(material, restored)
        progress = Progress.from_dict(restored.state["progress"]) if restored else Progress()
        if self.request.task.evaluation.goal is None:
            progress.best_step = 0  # an attempt before may have had one
        throughput = self._throughput(trainer, progress, peak_flops(self.request.plan, self.world.local_size))
        ledger = self._train(trainer, material, checkpoints, restored, progress, throughput)
        if ledger.stopped and len(progress.losses) < material.steps:
            return self._result("stopped", material, progress, throughput, restored, Artifacts(None, None, None))
        if progress.best_step not in (0, len(progress.losses)):
            self._restore_best(trainer, checkpoints, progress)
        self.commits = checkpoints.kept(progress.best_step)
        artifacts = self._save(trainer, material, progress, throughput)
        return self._result("succeeded", material, progress, throughput, restored, artifacts)

    def _place(self, material: Material, restored: Restored) -> None:
        """Put the data at the place of the checkpoint, and say which settings are others from here on. Raises BadInput for other rows, and
        for a task that now ends before the checkpoint.
        """
        if restored.step > material.steps:
            raise BadInput(
                f"the checkpoint is of step {restored.step}, and the task now ends after step {material.steps}",
                f"set steps to {restored.step} or more; `tuneyard checkpoints convert --step N` writes the model of an earlier checkpoint",
            )
        base = restored.extra.get("base")
        if base and (other := changed_marks(base, self.base)):
            raise BadInput(
                f"{self.request.model_uri} is another base than when the checkpoint was written: {', '.join(other[:3])} changed",
                "restore the base to resume, or start again in another output",
            )
        before = restored.extra.get("settings")
        changed = [] if before is None else changes(before, settings_of(self.request.task))
        of_rows = {change.field: str(change) for change in changed if change.effect is Effect.BY_ROWS}
        said = [material.data.place(restored.extra.get("cursors", {}), restored.extra.get("contents", {}), of_rows)]
        taken = [str(change) for change in changed if change.effect is Effect.NEXT_STEP]
        if taken:
            said.append(f"{'; '.join(taken)}, at step {restored.step + 1}")
        for message in filter(None, said):
            self._warn(message)

    def _save_model_files(self, trainer: SteppedTrainer, material: Material) -> None:
        save_model_files(trainer.model, material.tokenizer, self.request, self.world, turn_end=material.turn_end, shards=self.shards)

    def _throughput(self, trainer: SteppedTrainer, progress: Progress, peak: float) -> Throughput:
        return Throughput(progress, flops_of(self.request.task, trainer.model.config), peak)

    def _save(self, trainer: SteppedTrainer, material: Material, progress: Progress, throughput: Throughput) -> Artifacts:
        card = model_card(self.request, figures_of(self.request.plan, progress, throughput), data.read_so_far(material.data))
        proof = None
        if self.before is not None and not self.request.is_trial:  # the model of a trial is thrown away
            proof = SavedProof.of(trainer, self.request, self.world, self.before.ids)
        beside = Beside(material.tokenizer, material.turn_end, card, self._origins(material, progress))
        artifacts = save_artifacts(
            trainer, self.request, start=material.start, beside=beside, proof=proof, world=self.world, emit=self.emit
        )
        skipped = {"skipped": True, "sentence": "proof: skip, so what is saved was not compared with what was trained"}
        before = {"seconds_before": self.before.seconds} if self.before is not None else {}
        self.proven = before | (proof.told() if proof is not None else skipped)
        return artifacts

    def _origins(self, material: Material, progress: Progress) -> Origins:
        steps = len(progress.losses)
        cursors = material.data.cursors(steps * self.request.plan.global_batch)
        return Origins(
            data={"source": material.data.report.source, "cursors": cursors, "contents": material.data.contents, **self._ways(material)},
            step=progress.best_step or steps,
            losses=progress.losses,
            evaluations=progress.eval_losses,
            commits=self.commits,
        )

    @staticmethod
    def _ways(material: Material) -> dict[str, Any]:
        return {"ways": {name: asdict(way) for name, way in material.data.ways.items()}}

    def _stage(self, name: str) -> None:
        self.emit(Stage(task=self.request.name, name=name))

    def _warn(self, message: str) -> None:
        self.emit(Warned(task=self.request.name, message=message))

    def _prepare(self) -> Material:
        return prepare_material(self.request, self.world, self.resumed, self.emit)

    def _build_trainer(self, material: Material) -> SteppedTrainer:
        chosen = choose_trainer(self.request, material, self.world, self._warn)
        self.shards, self.context, self.before = chosen.shards, chosen.context, chosen.before
        self.router_weight, self.expert_load = chosen.router_weight, chosen.expert_load
        return chosen.trainer

    def _checkpoints(self) -> Checkpoints:
        request, task, plan = self.request, self.request.task, self.request.plan
        return Checkpoints(
            output=request.output,
            scratch=self.scratch,
            task=request.name,
            keep=task.checkpoint.keep,
            every=task.checkpoint.every_steps,
            made_by=self._made_by(),
            settings=settings_of(task),
            layout={"workers": plan.workers, "zero": plan.zero, **self._groups()},
            world=self.world,
            emit=self.emit,
        )

    def _made_by(self) -> dict[str, Any]:
        """Properties of a checkpoint that must agree with this attempt for a resume."""
        request, task, plan = self.request, self.request.task, self.request.plan
        return {
            "model": request.model_uri,
            "method": task.method.model_dump(mode="json", exclude_none=True),
            "objective": task.objective,
            "seed": task.seed,
            "optimizer": task.optimizer.name,
            "global batch": plan.global_batch,
        }

    def _groups(self) -> dict[str, int]:
        """Size of the tensor group, and replicas of the shards, if above 1: part of the layout in a checkpoint."""
        tensor, hosts = self.world.mesh.tensor, self.world.host_groups
        return {**({"tensor": tensor} if tensor > 1 else {}), **({"hosts": hosts.hosts} if hosts else {})}

    def _train(
        self,
        trainer: SteppedTrainer,
        material: Material,
        checkpoints: Checkpoints,
        restored: Restored | None,
        progress: Progress,
        throughput: Throughput,
    ) -> Ledger:
        task, plan = self.request.task, self.request.plan
        ledger = Ledger(
            task=self.request.name,
            steps=material.steps,
            stop_at=self.request.stop_at,
            precision=plan.precision,
            world=self.world,
            progress=progress,
            throughput=throughput,
            emit=self.emit,
        )
        ledger.attach(trainer, self.stop)

        def save(trainer: SteppedTrainer) -> None:
            ledger.settle()
            step = trainer.state.global_step
            rows = step * plan.global_batch
            extra = {
                "tokens": progress.tokens,
                "row": rows,
                "cursors": material.data.cursors(rows),
                "contents": material.data.contents,
                **self._ways(material),
                "base": self.base,
                "world_size": self.world.size,
                "plan": plan.to_dict(),
            }
            # A checkpoint that ends the attempt or is kept as the best must be committed before training continues.
            wait = ledger.stopped or step == material.steps or step == progress.best_step
            checkpoints.save(trainer, progress.to_dict(), extra, keep_step=progress.best_step, wait=wait)

        def evaluated(step: int, loss: float, figures: Mapping[str, float]) -> None:
            progress.eval_losses.append((step, loss))
            if figures:
                progress.figures.append({"step": step, **figures})
            self.emit(Evaluated(task=self.request.name, step=step, loss=loss, figures=figures))

        start = restored.step if restored else 0

        def go_on() -> None:
            if restored is not None:
                load(trainer, restored, self.world, seed=task.seed)
                if words := rate_words(trainer, restored, schedule=task.optimizer.schedule, steps=material.steps):
                    self._warn(words)
                checkpoints.drop_copy(restored)
            elif self.world.gradient_rank:  # ranks with rows of their own drop activations of their own
                seed_random(task.seed, 0, self.world.gradient_rank)

        batches = replace(material.batches, start=start)
        trainer.prepare_run(
            batches,
            self.world,
            load=go_on,
            save=save,
            on_lap=ledger.on_lap,
            on_evaluation=evaluated,
            warn=self._warn,
            router_weight=self.router_weight,
            expert_load=self.expert_load,
            mixed=material.data.mixed,
            shards=self.shards,
            context=self.context,
            longest_row=task.data.max_length,
            longest_sample=self.before.tokens if self.before is not None else 0,
            exchange=lambda trainer: exchange_gradients(trainer, self.world, plan),
            optimizer=optimizer_of(task),
            # A compiled layer would be compiled again for the row of the proof.
            proves_recomputation=task.proof == "full" and not plan.compiled,
            probing=uncompiled if plan.compiled else nullcontext,
            first_pass=lambda: first_pass(trainer.model, plan),
        )
        trainer.remove_callback(PrinterCallback)
        evaluates = material.data.validation is not None
        trainer.add_callback(Cadence(task, steps=material.steps, evaluates=evaluates, save_is_due=checkpoints.is_due))
        trainer.add_callback(ledger)
        if (goal := task.evaluation.goal) is not None:
            patience, gain = task.evaluation.early_stop, task.evaluation.min_improvement
            trainer.add_callback(BestEvaluation(progress, goal, patience=patience, min_improvement=gain, warn=self._warn))
        if plan.compiled:
            self._stage("the first steps compile the layers, for a minute or more")
        self._stage(f"continues from step {start + 1} of {material.steps}" if 0 < start < material.steps else "training")
        # This call is needed after the last step too: it prepares the model and loads the checkpoint.
        if self.world.is_first_here:
            where: Any = {"task": self.request.name, "machine": self.world.machine}
            self.use.tell = lambda figures: self.emit(MachineUsed(step=len(progress.losses), figures=figures, **where))
            self.use.start()
        try:
            with compiled_layers(trainer.model) if plan.compiled else nullcontext():
                trainer.train()
        finally:
            self.use.stop()
            self.exchange = trainer.exchange
            if self.exchange is not None:
                self.exchange.close()
        self.router_weight = trainer.router_weight
        ledger.finish()
        checkpoints.settle()
        return ledger

    def _restore_best(self, trainer: SteppedTrainer, checkpoints: Checkpoints, progress: Progress) -> None:
        best = checkpoints.fetch(progress.best_step)
        if best is None:
            message = f"the checkpoint of the best evaluation, step {progress.best_step}, is damaged; the last weights are saved instead"
            self._warn(message)
        else:
            load_weights(trainer, best, self.world)
            checkpoints.drop_copy(best)

    def _result(
        self,
        status: str,
        material: Material,
        progress: Progress,
        throughput: Throughput,
        restored: Restored | None,
        artifacts: Artifacts,
    ) -> TrainResult:
        barrier(self.world)
        plan, start, rate = self.request.plan, restored.step if restored else 0, throughput.mean()
        return TrainResult(
            status=status,
            steps=len(progress.losses),
            losses=progress.losses,
            eval_losses=progress.eval_losses,
            tokens=progress.tokens,
            tokens_per_s=rate.tokens_per_s,
            mfu=rate.mfu,
            peak_from=gpu(plan.sku).basis,
            flops_per_step=throughput.flops_per_step,
            peak_memory_gb=gather_objects(self.world, peak_gb(self.world.device)),
            reserved_memory_gb=gather_objects(self.world, reserved_gb(self.world.device)),
            host_memory_gb=gather_objects(self.world, host_peak_gb()),
            libraries_gb=gather_objects(self.world, self.libraries.in_gb()),
            planned_memory_gb=plan.memory.total_gb,
            world_size=self.world.size,
            wall_s=time.perf_counter() - self.began,
            split=progress.split_s,
            **asdict(artifacts),
            resumed_from=start,
            details={
                **details_of(material.data, plan, progress, router_weight=self.router_weight),
                **(best_of(progress, self.request.task.evaluation, material.steps) if status == "succeeded" else {}),
                **exchange_of(self.exchange, plan, len(progress.losses) - start),
                **machines_of(gather_objects(self.world, self.use.to_dict()), plan, progress, rate.mfu),
                **({"proof": self.proven} if self.proven else {}),
            },
        )
