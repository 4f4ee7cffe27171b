"""Scalar state of a run: schedule, loss scale, the optimizer's step count, random generators. All JSON."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def scalar_state(trainer: Any) -> dict[str, Any]:
    """The scalar state; the same on every rank."""
    schedule = _bare(trainer.lr_scheduler, "scheduler").state_dict()
    return {
        "step": trainer.state.global_step,
        "schedule": {"last_epoch": schedule["last_epoch"], "learning_rate": schedule["_last_lr"][0]},
        "optimizer_steps": _steps(_optimizer(trainer)),
        "loss_scale": _loss_scale(trainer),
    }


def load_scalar_state(trainer: Any, state: Mapping[str, Any]) -> None:
    """Load schedule, loss scale and counters. The tensors of the optimizer must already be loaded."""
    optimizer, schedule = _optimizer(trainer), _bare(trainer.lr_scheduler, "scheduler")
    # The rate of this attempt's schedule at that step, not the one that was saved: learning rate, schedule or steps may have changed.
    # Layouts group parameters differently, but all groups share one rate.
    done, groups = state["schedule"]["last_epoch"], len(optimizer.param_groups)
    rate = schedule.base_lrs[0] * schedule.lr_lambdas[0](done)
    schedule.load_state_dict({**schedule.state_dict(), "last_epoch": done, "_step_count": done + 1, "_last_lr": [rate] * groups})
    for group in optimizer.param_groups:
        group["lr"] = rate
    _set_steps(optimizer, state["optimizer_steps"])
    if state["loss_scale"] is not None:
        _set_loss_scale(trainer, state["loss_scale"])
    if trainer.is_deepspeed_enabled:
        trainer.deepspeed.global_steps = state["step"]


def _bare(thing: Any, inside: str) -> Any:
    """`thing` without accelerate's wrapper."""
    return getattr(thing, inside, thing)


def _optimizer(trainer: Any) -> Any:
    return trainer.deepspeed.optimizer.optimizer if trainer.is_deepspeed_enabled else _bare(trainer.optimizer, "optimizer")


def _steps(optimizer: Any) -> float | None:
    """Steps that the optimizer has taken, for Adam's bias correction; None for an optimizer that does not count."""
    counts = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
    return max(counts, default=None)


def _set_steps(optimizer: Any, steps: float | None) -> None:
    if steps is None:
        return
    of_torch = type(optimizer).__module__.startswith("torch.")
    fused = any(group.get("fused") for group in optimizer.param_groups)  # the kernel reads the count where the parameter is
    for parameter, state in optimizer.state.items():
        if torch.is_tensor(state.get("step")):
            state["step"].fill_(steps)
        elif state:
            where = parameter.device if fused else None
            state["step"] = torch.tensor(steps, dtype=torch.float32, device=where) if of_torch else int(steps)


def _loss_scale(trainer: Any) -> dict[str, float] | None:
    """The scale, and the number of good steps with it."""
    if trainer.is_deepspeed_enabled:
        scaler: Any = getattr(trainer.deepspeed.optimizer, "loss_scaler", None)
        if not getattr(scaler, "dynamic", False):
            return None
        return {"scale": float(scaler.cur_scale), "good_steps": scaler.cur_iter - scaler.last_overflow_iter - 1}
    scaler = trainer.accelerator.scaler
    if scaler is None or not scaler.is_enabled():
        return None
    state = scaler.state_dict()
    return {"scale": float(state["scale"]), "good_steps": int(state["_growth_tracker"])}


def _set_loss_scale(trainer: Any, saved: Mapping[str, float]) -> None:
    scale, good_steps = saved["scale"], int(saved["good_steps"])
    if trainer.is_deepspeed_enabled:
        scaler: Any = getattr(trainer.deepspeed.optimizer, "loss_scaler", None)
        if getattr(scaler, "dynamic", False):
            scaler.cur_scale, scaler.last_overflow_iter, scaler.cur_iter = scale, -1, good_steps
        return
    scaler = trainer.accelerator.scaler
    if scaler is not None and scaler.is_enabled():
        scaler.load_state_dict({**scaler.state_dict(), "scale": scale, "_growth_tracker": good_steps})


def random_state(device: torch.device) -> dict[str, Any]:
    """States of this rank's generators."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=True)
    name, keys, position, has_gauss, cached = numpy_state
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [name, _encode(torch.from_numpy(keys.astype(np.int64))), position, has_gauss, cached],
        "torch": _encode(torch.get_rng_state()),
    }
    if device.type == "cuda":
        state["cuda"] = _encode(torch.cuda.get_rng_state(device))
    return state


def load_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Continue the random sequence of the rank that saved `state`."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, _decode(keys, torch.int64).numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(_decode(state["torch"], torch.uint8))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(_decode(state["cuda"], torch.uint8), device)


def seed_random(seed: int, step: int, rank: int) -> None:
    """Seed the generators for a resume with another number of ranks: they depend only on the position of the run."""
    mixed = int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0])
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)


def _encode(tensor: torch.Tensor) -> str:
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def _decode(text: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=dtype)
