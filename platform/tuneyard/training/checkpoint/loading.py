"""Loads a checkpoint into a trainer: tensors into the views of `pieces`, then the scalar state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tuneyard.api import BadInput
from tuneyard.training.checkpoint.pieces import WEIGHT, Piece, Saved, after_load, groups_of
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.checkpoint.state import load_random_state, load_scalar_state, seed_random
from tuneyard.training.distributed import World


@dataclass(frozen=True)
class Restored:
    """A committed checkpoint, on a local disk that this rank can read."""

    step: int
    reader: Reader
    state: Mapping[str, Any]
    extra: Mapping[str, Any]
    random: Mapping[str, Any] | None
    """State of this rank's generators; None if another mesh saved them."""
    fits_opaque: bool
    """Whether the layout of this run fits the tensors that cannot be re-cut."""


def rate_words(trainer: Any, restored: Restored, *, schedule: str, steps: int) -> str:
    """Where the learning rate goes on after `load`, if the schedule of `steps` steps has another rate there than the checkpoint's; else
    empty. Nothing is left to say after the last step."""
    before, rate = restored.state["schedule"]["learning_rate"], trainer.lr_scheduler.get_last_lr()[0]
    if restored.step >= steps or math.isclose(before, rate, rel_tol=1e-6, abs_tol=1e-12):
        return ""
    of = f"step {restored.step + 1} ({schedule} over {steps} steps)"
    return f"the learning rate goes on at {rate:.3g} in {of}; the checkpoint had {before:.3g}"


def load(trainer: Any, restored: Restored, world: World, *, seed: int) -> None:
    """Load a checkpoint into a trainer with a prepared model and optimizer, so that training continues from it.

    Raises BadInput if the optimizer has a state that cannot be cut for this layout.
    """
    reader = restored.reader
    if reader.opaque_keys and not restored.fits_opaque:
        raise BadInput(
            f"the state of this optimizer cannot be re-cut, and the layout was {restored.extra['layout']}",
            "resume with as many workers and the same ZeRO stage; the state of optimizer.name: adamw fits any layout",
        )
    with torch.no_grad():
        for group in groups_of(trainer, world, saved=Saved(reader.kinds_of, reader.opaque_under), only_own_share=False):
            for piece in group.pieces:
                _check_kinds(piece, reader)
                for kind, tensor in piece.tensors.items():
                    tensor.copy_(reader.read(piece.name, kind, piece.box, piece.start, piece.stop))
            for key, tensor in group.opaque.items():
                tensor.copy_(reader.opaque(key))
    after_load(trainer)
    load_scalar_state(trainer, restored.state)
    if restored.random is not None:
        load_random_state(restored.random, world.device)
    else:
        seed_random(seed, restored.step, world.gradient_rank)  # the same in a tensor group, whose ranks drop the same activations


def load_weights(trainer: Any, restored: Restored, world: World) -> None:
    """Load only the weights into a trainer."""
    with torch.no_grad():
        for group in groups_of(trainer, world, only_own_share=False):
            for piece in group.pieces:
                piece.tensors[WEIGHT].copy_(restored.reader.read(piece.name, WEIGHT, piece.box, piece.start, piece.stop))
    after_load(trainer)


def _check_kinds(piece: Piece, reader: Reader) -> None:
    """Raises BadInput if the optimizer has other states than the checkpoint: they would silently start from zero."""
    there, here = set(reader.kinds_of(piece.name)), set(piece.tensors)
    if there and there != here:
        raise BadInput(
            f"the checkpoint has {', '.join(sorted(there))} of {piece.name}, and this optimizer keeps {', '.join(sorted(here))}",
            "resume with the optimizer it was made with, or start again with another output folder",
        )
