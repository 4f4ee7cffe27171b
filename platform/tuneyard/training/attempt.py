"""One attempt at a train task, in one rank: load, prepare, train, save, answer. Read it top to bottom; each step has a file of its own."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState
from transformers import AutoConfig, PrinterCallback
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.utils import logging as transformers_logging

from tuneyard import data
from tuneyard.catalog import gpu
from tuneyard.data.mapped_rows import by_batches
from tuneyard.data.shown import first_pieces
from tuneyard.parallel import Mesh, Shards
from tuneyard.parallel.context import ContextParallel
from tuneyard.parallel.exchange import GradientExchange
from tuneyard.planning import steps_of_epochs
from tuneyard.storage import Holder
from tuneyard.tracking.bottleneck import bottleneck_of
from tuneyard.tracking.events import Emit, Evaluated, SampleShown, Stage, Warned, silent
from tuneyard.training.adapters import with_adapter
from tuneyard.training.arguments import optimizer_of, training_arguments
from tuneyard.training.artifacts import Artifacts, save_artifacts
from tuneyard.training.checkpoint.checkpoints import Checkpoints
from tuneyard.training.checkpoint.loading import Restored, load, load_weights
from tuneyard.training.checkpoint.model_files import save_model_files
from tuneyard.training.collate import Collator
from tuneyard.training.context import SliceCollator
from tuneyard.training.distributed import World, barrier, gather_objects, joined_world
from tuneyard.training.early_stop import Cadence, EarlyStop
from tuneyard.training.expert_load import ExpertLoad
from tuneyard.training.flops import flops_of, peak_flops
from tuneyard.training.gradients import exchange_gradients
from tuneyard.training.host_sharding import sharded_within_hosts
from tuneyard.training.ledger import Ledger
from tuneyard.training.memory import held_gb, is_out_of_memory, out_of_memory, peak_gb, reset_peak
from tuneyard.training.model_card import model_card
from tuneyard.training.models import adapter_source, find_start, largest_parameter, load_model, load_tokenizer, vision_warning
from tuneyard.training.offload_ops import prepare_offload
from tuneyard.training.order import Batches
from tuneyard.training.progress import Progress
from tuneyard.training.request import TrainRequest, TrainResult
from tuneyard.training.router_loss import take_router_loss
from tuneyard.training.sharded_start import load_parts
from tuneyard.training.stop import StopRequest, listening
from tuneyard.training.tensor_parallel import check_supported, plan_from_config, shard, tensor_plan
from tuneyard.training.throughput import Throughput
from tuneyard.training.token_mean import take_token_mean
from tuneyard.training.trainer import SteppedTrainer
from tuneyard.training.vocabulary import check_vocabulary, fit_embedding

_LAST_SAVE_S = 60.0
"""After a failure, a save that is on its way may take so long to end."""


def never() -> bool:
    """A `should_stop` that lets the task run to its end."""
    return False


def train(request: TrainRequest, *, emit: Emit = silent, should_stop: Callable[[], bool] = never) -> TrainResult:
    """Run one rank of a train task to its end, or to a stop that was asked for; the same result on every rank.

    The rank and the world come from torchrun's environment; without it there is one process. `should_stop` is polled twice a
    second on every rank: once any rank's is true, all stop after the same step and a checkpoint is committed. In the main thread
    SIGTERM and SIGINT do the same.

    Raises BadInput (a model or data set that cannot be used), JobFailed (NaN loss, out of memory), StorageError (a failed write).
    """
    plan = request.plan
    check_supported(plan)
    mesh = Mesh.over(plan.workers, context=plan.context_parallel, tensor=plan.tensor_parallel)
    joined = joined_world(on_gpu=plan.sku != "cpu", with_deepspeed=plan.zero > 0, mesh=mesh)
    with joined as world, listening(should_stop) as stop, _clean_libraries():
        try:
            with sharded_within_hosts(plan, world) as placed:
                return _Attempt(request, placed, stop, emit if world.is_first else silent).run()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise out_of_memory(error, plan, world.device) from error
            raise


@contextmanager
def _clean_libraries() -> Iterator[None]:
    """Leave transformers and accelerate as they were: both keep the choice of DeepSpeed in the process, and would force it on the
    next run in it. Meanwhile no progress bars and notices of theirs, which every rank would print."""
    accelerate_log = logging.getLogger("accelerate")
    verbosity = transformers_logging.get_verbosity()
    settings = {name: value for name, value in os.environ.items() if name.startswith("ACCELERATE_")}
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    accelerate_log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # DeepSpeed calls collectives by names that torch has given up, in every step.
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*is deprecated. Please use `torch.distributed")
            yield
    finally:
        accelerate_log.setLevel(logging.NOTSET)
        transformers_logging.set_verbosity(verbosity)
        for name in [name for name in os.environ if name.startswith("ACCELERATE_") and name not in settings]:
            del os.environ[name]
        unset_hf_deepspeed_config()
        AcceleratorState._reset_state(reset_partial_state=True)


@dataclass(frozen=True)
class _Material:
    """What all later steps need: the same on every rank."""

    start: str
    tokenizer: Any
    turn_end: int | None
    """The token that ends an answer by the chat template, where samples were rendered by it."""
    data: data.Prepared
    steps: int
    batches: Batches


class _Attempt:
    """One attempt in one rank."""

    def __init__(self, request: TrainRequest, world: World, stop: StopRequest, emit: Emit) -> None:
        self.request = request
        self.world = world
        self.context: ContextParallel | None = None
        self.stop = stop
        self.emit = emit
        self.scratch = Path(request.scratch)
        self.began = time.perf_counter()
        self.libraries_gb = 0.0
        self.router_weight = 0.0
        self.expert_load: ExpertLoad | None = None
        self.shards: Shards | None = None
        self.exchange: GradientExchange | None = None

    def run(self) -> TrainResult:
        """Raises BadInput if another job is writing to the output."""
        reset_peak(self.world.device)
        self.libraries_gb = held_gb()
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
        material = self._prepare()
        trainer = self._build_trainer(material)
        save_model_files(trainer.model, material.tokenizer, self.request, self.world, turn_end=material.turn_end, shards=self.shards)
        restored = None
        if self.request.resume:
            restored = checkpoints.restore()
        else:
            checkpoints.start_anew()
        if restored is not None:
            material.data.place(restored.extra.get("cursors", {}))
        progress = Progress.from_dict(restored.state["progress"]) if restored else Progress()
        peak = peak_flops(self.request.plan, self.world.local_size)
        throughput = Throughput(progress, flops_of(self.request.task, trainer.model.config), peak)
        ledger = self._train(trainer, material, checkpoints, restored, progress, throughput)
        if ledger.stopped and len(progress.losses) < material.steps:
            return self._result("stopped", material, progress, throughput, restored, Artifacts(None, None, None))
        if progress.best_step not in (0, len(progress.losses)):
            self._restore_best(trainer, checkpoints, progress)
        card = model_card(self.request, self._figures(progress, throughput))
        artifacts = save_artifacts(
            trainer,
            self.request,
            start=material.start,
            tokenizer=material.tokenizer,
            turn_end=material.turn_end,
            card=card,
            world=self.world,
            emit=self.emit,
        )
        return self._result("succeeded", material, progress, throughput, restored, artifacts)

    def _stage(self, name: str) -> None:
        self.emit(Stage(task=self.request.name, name=name))

    def _prepare(self) -> _Material:
        request, task, plan = self.request, self.request.task, self.request.plan
        prepare_offload(plan, self.world, optimizer=task.optimizer.name, task=request.name, emit=self.emit)
        self._stage("loading the model")
        start = find_start(request, self.world)
        tokenizer = load_tokenizer(request, start)
        check_vocabulary(tokenizer, request, start)
        if plan.tensor_parallel > 1:  # refused before data are prepared; the model that is loaded may have more rows in its embedding
            trust = task.model.trust_remote_code
            config = AutoConfig.from_pretrained(start, revision=task.model.revision, trust_remote_code=trust)
            plan_from_config(config, plan.tensor_parallel, trust_remote_code=trust)
        service = Path(request.streams) if request.streams else None
        prepared = data.prepare(
            task.data, tokenizer, objective=task.objective, seed=task.seed, service=service, emit=self.emit, task=request.name
        )
        if prepared.chat_template is not None:
            tokenizer.chat_template = prepared.chat_template
        data.set_prompt_form(tokenizer, chats=prepared.chats)
        turn_end = data.turn_end(tokenizer) if prepared.chats else None
        self._show_sample(tokenizer, prepared, turn_end)
        order = prepared.order
        steps = task.steps or steps_of_epochs(task.epochs or 1.0, order.epoch_rows, plan.global_batch)
        batches = Batches(
            rows_at=order.at_each,
            micro_batch=plan.micro_batch,
            grad_accum=plan.grad_accum,
            rank=self.world.data_rank,
            workers=self.world.mesh.data,
            start=0,
            stop=steps,
        )
        return _Material(start, tokenizer, turn_end, prepared, steps, batches)

    def _show_sample(self, tokenizer: Any, prepared: data.Prepared, turn_end: int | None) -> None:
        """Once a task: not in later attempts, and not in trials of a search."""
        if not self.request.task.data.show_sample or self.request.attempt > 1 or "/" in self.request.name:
            return
        pieces = tuple((piece.text, piece.loss) for piece in first_pieces(tokenizer, prepared.train))
        end = turn_end if prepared.chats else tokenizer.eos_token_id
        ends_with = "" if end is None else str(tokenizer.convert_ids_to_tokens(end))
        has_answers = prepared.report.format != "text"
        rendered = prepared.report.format != "preference"
        self.emit(SampleShown(task=self.request.name, pieces=pieces, ends_with=ends_with if has_answers else None, rendered=rendered))

    def _build_trainer(self, material: _Material) -> SteppedTrainer:
        request, task, plan = self.request, self.request.task, self.request.plan
        largest = largest_parameter(request, material.start) if plan.offload_parameters == "nvme" else 0
        if task.objective == "dpo":
            from tuneyard.training.preference import preference_arguments

            arguments = preference_arguments(task, plan, steps=material.steps, scratch=self.scratch, largest_parameter=largest)
        else:
            arguments = training_arguments(task, plan, steps=material.steps, scratch=self.scratch, largest_parameter=largest)
        # A process is a rank: alone on a machine with several GPUs, transformers would spread it over all of them (DataParallel).
        arguments._n_gpu = min(arguments.n_gpu, 1)
        parts = load_parts(request, material.start, material.tokenizer, self.world)
        model = load_model(request, material.start, self.world) if parts is None else parts.model
        fit_embedding(model, material.tokenizer, request)
        unsaid = vision_warning(request, material.start, model)
        if unsaid is not None:
            self.emit(Warned(task=request.name, message=unsaid))
        if task.objective != "dpo":  # TRL's trainer of preference pairs adds the router's loss itself
            self.router_weight = take_router_loss(model, task.router_loss)
            self.expert_load = ExpertLoad.of(model)
        cuts = tensor_plan(model, plan.tensor_parallel) if parts is None else None
        adapter = adapter_source(request, self.world) if request.adapter_uri and task.method.adapter is not None else None
        model = with_adapter(model, request, adapter)
        self.shards = shard(model, cuts, self.world) if parts is None else parts.shards
        if task.objective == "dpo":
            from tuneyard.training.preference import preference_trainer

            return preference_trainer(
                request,
                model,
                arguments,
                self.world,
                start=material.start,
                tokenizer=material.tokenizer,
                train=material.data.train,
                validation=material.data.validation,
            )
        pad = material.tokenizer.pad_token_id
        collator: Any = Collator(pad if pad is not None else 0, lay_flat=task.data.pack and plan.attention == "flash")
        if plan.context_parallel > 1:
            self.context = ContextParallel(self.world.context_group)
            self.context.prepare(model)
            collator = SliceCollator(collator, self.context.index, self.context.ranks, pad if pad is not None else 0)
        rows, held_out = (by_batches(each) for each in (material.data.train, material.data.validation))
        trainer = SteppedTrainer(model=model, args=arguments, data_collator=collator, train_dataset=rows, eval_dataset=held_out)
        take_token_mean(trainer)
        return trainer

    def _checkpoints(self) -> Checkpoints:
        request, task, plan = self.request, self.request.task, self.request.plan
        made_by = {
            "model": request.model_uri,
            "method": task.method.model_dump(mode="json", exclude_none=True),
            "objective": task.objective,
            "seed": task.seed,
            "optimizer": task.optimizer.name,
            "global batch": plan.global_batch,
        }
        return Checkpoints(
            output=request.output,
            scratch=self.scratch,
            task=request.name,
            keep=task.checkpoint.keep,
            every=task.checkpoint.every_steps,
            made_by=made_by,
            layout={"workers": plan.workers, "zero": plan.zero, **self._groups()},
            world=self.world,
            emit=self.emit,
        )

    def _groups(self) -> dict[str, int]:
        """Ranks that share each weight, and replicas of the shards, where there are several: part of the layout that a checkpoint names."""
        tensor, hosts = self.world.mesh.tensor, self.world.host_groups
        return {**({"tensor": tensor} if tensor > 1 else {}), **({"hosts": hosts.hosts} if hosts else {})}

    def _train(
        self,
        trainer: SteppedTrainer,
        material: _Material,
        checkpoints: Checkpoints,
        restored: Restored | None,
        progress: Progress,
        throughput: Throughput,
    ) -> Ledger:
        task, plan = self.request.task, self.request.plan
        ledger = Ledger(
            task=self.request.name,
            steps=material.steps,
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
                "world_size": self.world.size,
                "plan": plan.to_dict(),
            }
            # What ends the attempt, or is kept for its own sake, must be there before anything else happens.
            wait = ledger.stopped or step == material.steps or step == progress.best_step
            checkpoints.save(trainer, progress.to_dict(), extra, keep_step=progress.best_step, wait=wait)

        def evaluated(step: int, loss: float) -> None:
            progress.eval_losses.append((step, loss))
            self.emit(Evaluated(task=self.request.name, step=step, loss=loss))

        start = restored.step if restored else 0

        def go_on() -> None:
            if restored is not None:
                load(trainer, restored, self.world, seed=task.seed)
                checkpoints.drop_copy(restored)

        batches = replace(material.batches, start=start)
        trainer.prepare_run(
            batches,
            self.world,
            load=go_on,
            save=save,
            on_lap=ledger.on_lap,
            on_evaluation=evaluated,
            router_weight=self.router_weight,
            expert_load=self.expert_load,
            mixed=material.data.mixed,
            shards=self.shards,
            context=self.context,
            longest_row=task.data.max_length,
            exchange=lambda trainer: exchange_gradients(trainer, self.world, plan),
            optimizer=optimizer_of(task),
        )
        trainer.remove_callback(PrinterCallback)
        evaluates = material.data.validation is not None
        trainer.add_callback(Cadence(task, steps=material.steps, evaluates=evaluates, save_is_due=checkpoints.is_due))
        trainer.add_callback(ledger)
        if task.evaluation.early_stop is not None:
            patience, gain = task.evaluation.early_stop, task.evaluation.min_improvement
            trainer.add_callback(EarlyStop(progress, patience=patience, min_improvement=gain))
        self._stage(f"goes on from step {start + 1} of {material.steps}" if 0 < start < material.steps else "training")
        # Called after the last step too: it is what prepares the model and loads the checkpoint.
        trainer.train()
        self.router_weight = trainer.router_weight
        self.exchange = trainer.exchange
        if self.exchange is not None:
            self.exchange.close()
        ledger.finish()
        checkpoints.settle()
        return ledger

    def _restore_best(self, trainer: SteppedTrainer, checkpoints: Checkpoints, progress: Progress) -> None:
        best = checkpoints.fetch(progress.best_step)
        if best is None:
            message = f"the checkpoint of the best evaluation, step {progress.best_step}, is damaged; the last weights are saved instead"
            self.emit(Warned(task=self.request.name, message=message))
        else:
            load_weights(trainer, best, self.world)
            checkpoints.drop_copy(best)

    def _figures(self, progress: Progress, throughput: Throughput) -> dict[str, Any]:
        rate = throughput.mean()
        figures: dict[str, Any] = {"steps": len(progress.losses), "tokens": progress.tokens, "last training loss": progress.losses[-1]}
        if progress.eval_losses:
            figures["held-out loss"] = progress.best_eval_loss or progress.eval_losses[-1][1]
        of = " of the measured peak" if gpu(self.request.plan.sku).basis == "measured" else ""
        return figures | {"tokens/s": rate.tokens_per_s, "MFU": f"{rate.mfu:.1%}{of}"}

    def _mixture(self, material: _Material, progress: Progress) -> dict[str, Any]:
        """Rows and tokens of each part by step, where the data are a mixture."""
        mixture, batch = material.data.mixture, self.request.plan.global_batch
        if mixture is None:
            return {}
        by_step = [mixture.counts(step * batch, (step + 1) * batch) for step in range(len(progress.losses))]
        about = {"parts": [part.name for part in mixture.parts], "shares": mixture.shares, "rows_by_step": by_step}
        counted = len(progress.part_tokens) == len(progress.losses)  # an earlier version may have begun the run, without counting
        return {"mixture": about | ({"tokens_by_step": progress.part_tokens} if counted else {})}

    def _streams(self, material: _Material, progress: Progress) -> dict[str, Any]:
        """What making rows took while the task trained, and what its steps waited for, where data are streamed."""
        if not material.data.streams:
            return {}
        material.data.cursors(len(progress.losses) * self.request.plan.global_batch)  # torch's loaders have read in processes of their own
        stream = data.work_of(material.data)
        return {"stream": stream, "bottleneck": asdict(bottleneck_of(progress.split_s, stream))}

    def _exchange(self, steps: int) -> dict[str, Any]:
        """What this rank sent to average gradients in this attempt, where training does it itself."""
        exchange, plan = self.exchange, self.request.plan
        if exchange is None or not steps:
            return {}
        return {"exchange": {"across": plan.shard_within, "in": plan.quantised_all_reduce, "bytes_per_step": exchange.bytes_sent // steps}}

    def _result(
        self,
        status: str,
        material: _Material,
        progress: Progress,
        throughput: Throughput,
        restored: Restored | None,
        artifacts: Artifacts,
    ) -> TrainResult:
        barrier(self.world)
        rate = throughput.mean()
        return TrainResult(
            status=status,
            steps=len(progress.losses),
            losses=progress.losses,
            eval_losses=progress.eval_losses,
            tokens=progress.tokens,
            tokens_per_s=rate.tokens_per_s,
            mfu=rate.mfu,
            peak_from=gpu(self.request.plan.sku).basis,
            flops_per_step=throughput.flops_per_step,
            peak_memory_gb=gather_objects(self.world, peak_gb(self.world.device)),
            libraries_gb=gather_objects(self.world, self.libraries_gb),
            planned_memory_gb=self.request.plan.memory.total_gb,
            world_size=self.world.size,
            wall_s=time.perf_counter() - self.began,
            split=progress.split_s,
            **asdict(artifacts),
            resumed_from=restored.step if restored else 0,
            details={
                "data": data.read_so_far(material.data).to_dict(),
                "epochs": len(progress.losses) * self.request.plan.global_batch / material.data.order.epoch_rows,
                **self._mixture(material, progress),
                **self._streams(material, progress),
                **self._exchange(len(progress.losses) - (restored.step if restored else 0)),
                **({"router": {"weight": self.router_weight, "losses": progress.router_losses}} if self.router_weight else {}),
                **({"experts": {"busiest": progress.busiest, "load": progress.expert_load}} if progress.expert_load else {}),
            },
        )
