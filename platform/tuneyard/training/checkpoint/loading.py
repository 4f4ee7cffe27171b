"""A checkpoint into a trainer: tensors into the views that `pieces` shows, then what is not a tensor."""

from __future__ import annotations

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
    """This rank's generators; None where another mesh saved them."""
    fits_opaque: bool
    """Whether tensors that cannot be cut anew are cut as this run needs them."""


def load(trainer: Any, restored: Restored, world: World, *, seed: int) -> None:
    """Put a checkpoint into a trainer whose model and optimizer are ready, and go on as if nothing had happened.

    Raises BadInput if the optimizer keeps something that cannot be cut for this layout.
    """
    reader = restored.reader
    if reader.opaque_keys and not restored.fits_opaque:
        raise BadInput(
            f"the state of this optimizer cannot be cut anew, and the layout was {restored.extra['layout']}",
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
        seed_random(seed, restored.step, world.gradient_rank)  # alike in a tensor group, which drops out the same activations


def load_weights(trainer: Any, restored: Restored, world: World) -> None:
    """Put the weights alone into a trainer."""
    with torch.no_grad():
        for group in groups_of(trainer, world, only_own_share=False):
            for piece in group.pieces:
                piece.tensors[WEIGHT].copy_(restored.reader.read(piece.name, WEIGHT, piece.box, piece.start, piece.stop))
    after_load(trainer)


def _check_kinds(piece: Piece, reader: Reader) -> None:
    """What is not loaded would silently start from zero."""
    there, here = set(reader.kinds_of(piece.name)), set(piece.tensors)
    if there and there != here:
        raise BadInput(
            f"the checkpoint has {', '.join(sorted(there))} of {piece.name}, and this optimizer keeps {', '.join(sorted(here))}",
            "resume with the optimizer it was made with, or start anew with another output folder",
        )
