"""Report of a train task beside its losses and rates: data, mixture, streams, experts, early stop, and traffic of averaging gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuneyard import data
from tuneyard.api.evaluation import Evaluation
from tuneyard.catalog import gpu
from tuneyard.catalog.gpu_facts import OF_PEAK
from tuneyard.parallel.exchange import GradientExchange
from tuneyard.planning import Plan, usual_network_gb_s
from tuneyard.tracking.bottleneck import bottleneck_of
from tuneyard.tracking.bound import bound_of
from tuneyard.training.progress import Progress
from tuneyard.training.throughput import Throughput


def figures_of(plan: Plan, progress: Progress, throughput: Throughput) -> dict[str, Any]:
    """The figures of a model card."""
    rate = throughput.mean()
    figures: dict[str, Any] = {
        "steps": len(progress.losses),
        throughput.unit: progress.tokens,
        "last training loss": progress.losses[-1],
    }
    if progress.eval_losses:
        figures["held-out loss"] = progress.best_eval_loss or progress.eval_losses[-1][1]
    of = OF_PEAK.get(gpu(plan.sku).basis, "")
    return figures | {f"{throughput.unit}/s": rate.tokens_per_s, "MFU": f"{rate.mfu:.1%} {of}".rstrip()}


def details_of(prepared: data.Prepared, plan: Plan, progress: Progress, *, router_weight: float) -> dict[str, Any]:
    """`details` of a result that all kinds of training share."""
    router = {"router": {"weight": router_weight, "losses": progress.router_losses}} if router_weight else {}
    experts = {"experts": {"busiest": progress.busiest, "load": progress.expert_load}} if progress.expert_load else {}
    rewards = (
        {"rewards": {name.rpartition("/")[2]: values for name, values in progress.step_figures.items()}} if progress.step_figures else {}
    )
    return {
        "data": data.read_so_far(prepared).to_dict(),
        "epochs": len(progress.losses) * plan.global_batch / prepared.order.epoch_rows,
        **_mixture(prepared, plan, progress),
        **_streams(prepared, plan, progress),
        **router,
        **experts,
        **rewards,
    }


def best_of(progress: Progress, evaluation: Evaluation, steps: int) -> dict[str, Any]:
    """The evaluation whose weights are saved, and the step and reason of an early end of a run of `steps`, each with a sentence."""
    goal, made, best = evaluation.goal, len(progress.losses), progress.best_step
    if goal is None or not progress.eval_losses:
        return {}
    value = progress.figure(goal.metric, best)
    if value is None:
        kept = f"no evaluation had a value of {goal.metric}: the last weights are saved"
    else:
        kept = f"the weights of step {best} are saved: {goal.metric} {value:.4g} is the best of {len(progress.eval_losses)} evaluations"
    found = {"best": {"metric": goal.metric, "step": best, "value": value, **({"sentence": kept} if evaluation.best is not None else {})}}
    if made >= steps:
        return found
    sentence = f"stopped at step {made} of {steps}: no evaluation was better than that of step {best}, whose weights are saved"
    return {**found, "early_stop": {"step": made, "best_step": best, "sentence": sentence if value is not None else kept}}


def machines_of(found: Sequence[Mapping[str, Any]], plan: Plan, progress: Progress, mfu: float) -> dict[str, Any]:
    """What each machine did while it trained, and what bound the speed. `found`: of each rank; empty but for the first of a machine."""
    machines = [each for each in found if each]
    if not machines:
        return {}
    device, several = gpu(plan.sku), len(machines) > 1
    network = usual_network_gb_s(device, plan.workers // len(machines)) if several and not device.is_cpu else None
    offloads = plan.offload_optimizer != "none"
    bound = bound_of(progress.split_s, machines, offloads=offloads, network_gb_s=network, mfu=mfu)
    return {"machines": machines, **({"bound": asdict(bound)} if bound is not None else {})}


def exchange_of(exchange: GradientExchange | None, plan: Plan, steps: int) -> dict[str, Any]:
    """Bytes that this rank sent to average gradients over the `steps` of this attempt, if training averages them itself."""
    if exchange is None or not steps:
        return {}
    return {"exchange": {"across": plan.shard_within, "in": plan.quantised_all_reduce, "bytes_per_step": exchange.bytes_sent // steps}}


def _mixture(prepared: data.Prepared, plan: Plan, progress: Progress) -> dict[str, Any]:
    """Rows and tokens of each part by step, if the data are a mixture."""
    mixture, batch = prepared.mixture, plan.global_batch
    if mixture is None:
        return {}
    by_step = [mixture.counts(step * batch, (step + 1) * batch) for step in range(len(progress.losses))]
    about = {"parts": [part.name for part in mixture.parts], "shares": mixture.shares, "rows_by_step": by_step}
    counted = len(progress.part_tokens) == len(progress.losses)  # an earlier version, which did not count, may have started the run
    return {"mixture": about | ({"tokens_by_step": progress.part_tokens} if counted else {})}


def _streams(prepared: data.Prepared, plan: Plan, progress: Progress) -> dict[str, Any]:
    """Work of making rows during training, and waits of steps for rows, if data are streamed."""
    if not prepared.streams:
        return {}
    prepared.cursors(len(progress.losses) * plan.global_batch)  # torch's loaders have read in their own processes
    stream = data.work_of(prepared)
    return {"stream": stream, "bottleneck": asdict(bottleneck_of(progress.split_s, stream)), **data.shared_work_of(prepared)}
