"""Which weights the loss depends on, before the first step.

Autograd builds a graph for a row as long as the longest sample, because some layers take no part in shorter ones. A weight to train that is
not in it is reached by no text: the vision tower of a model without images, an indexer that only chooses keys. The optimizer would decay
it, and ranks without ZeRO would wait for its gradient. So it is frozen. Only the graph is kept: no activations, and no weights that ZeRO 3
has cut again behind their layer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from tuneyard.api import BadInput
from tuneyard.training.generators import kept_generators
from tuneyard.training.proofs.gathering import gathered_by_module
from tuneyard.training.proofs.kept_weights import kept_weights

MOST_TOKENS = 8192
_LAST = 16
_NAMED = 4
_EXPERT = re.compile(r"\.experts\.\d+\.")
_ADDED = re.compile(r"\.(?:lora_\w+|modules_to_save)\..*")
"""What PEFT adds below a module."""
_CANNOT_RUN = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError)


def freeze_unreached(model: nn.Module, tokens: int, device: torch.device) -> str | None:
    """Freeze the weights to train that no text of so many tokens reaches. Returns the warning that names them. Collective.

    An adapter whose base weight the loss reads past it stays: the first step refuses it. Does nothing for a model that cannot compute a
    loss from a few tokens alone; the first step then names its weights. Raises BadInput if the loss depends on no weight to train.
    """
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    reached = _reached(model, tokens, device)
    if reached is None:
        return None
    lost = lost_of(trained, {name for name, weight in trained.items() if id(weight) in reached})
    if not lost:
        return None
    bases = {name: weight for name in lost if (weight := base_weight(model, name)) is not None}
    with _asked(list(bases.values())):
        read = (_reached(model, tokens, device) or set()) if bases else set()
    unreached = [name for name in lost if name not in bases or id(bases[name]) not in read]
    if len(unreached) == len(trained):
        raise BadInput(
            f"the loss depends on none of the {len(trained)} weights to train ({some(unreached)})",
            "name other targets: modules of the language model",
        )
    for name in unreached:
        trained[name].requires_grad_(False)
    told = f"no text reaches {len(unreached)} of the {len(trained)} weights to train ({some(unreached)}): they stay as they are"
    return told if unreached else None


def lost_of(trained: Sequence[str] | dict[str, Any], reached: set[str]) -> list[str]:
    """Names that are not reached. An expert that got no token is none, if the same weight of another expert of its layer is reached."""
    shared = {_EXPERT.sub(".experts.", name) for name in reached if _EXPERT.search(name)}
    return [name for name in trained if name not in reached and _EXPERT.sub(".experts.", name) not in shared]


def adapted_module(name: str) -> str | None:
    """The module that a weight of an adapter, or a copy that is trained whole, belongs to; None for another weight."""
    module = _ADDED.sub("", name)
    return module if module != name else None


def base_weight(model: nn.Module, name: str) -> torch.Tensor | None:
    """The frozen weight below an adapter, or below a copy that is trained whole; None if there is none that can have a gradient."""
    path = adapted_module(name)
    if path is None:
        return None
    module = model.get_submodule(path)
    base = getattr(module, "base_layer", None) or getattr(module, "original_module", None)
    weight = getattr(base, "weight", None)
    return weight if weight is not None and weight.is_floating_point() and not weight.requires_grad else None


def some(names: Sequence[str]) -> str:
    """The first names, without what PEFT adds for itself."""
    plain = [name.removeprefix("base_model.model.").replace(".default", "").replace(".base_layer", "") for name in names[:_NAMED]]
    return ", ".join(plain) + (f", and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _reached(model: nn.Module, tokens: int, device: torch.device) -> set[int] | None:
    """Ids of the weights in the graph of the last logits, in training or evaluation: a layer may be left out by chance, or in only one of
    them. None if the class cannot compute logits from tokens alone.
    """
    whole: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    few = {"logits_to_keep": _LAST} if "logits_to_keep" in inspect.signature(whole.forward).parameters else {}
    vocabulary = whole.get_input_embeddings()
    size = int(getattr(vocabulary, "base_layer", vocabulary).num_embeddings)
    ids = (torch.arange(tokens, device=device) * size // tokens)[None]  # from the whole vocabulary
    was_training = model.training
    found: set[int] = set()
    try:
        with kept_generators(), kept_weights(model), gathered_by_module(model), saved_tensors_hooks(_drop, _drop):
            for training in (False, True):
                model.train(training)
                found |= _leaves(model(input_ids=ids, attention_mask=torch.ones_like(ids), **few).logits)
    except _CANNOT_RUN:
        return None
    finally:
        model.train(was_training)
    return found


def _drop(_: Any) -> None:
    """A tensor that the backward pass would need."""


def _leaves(result: torch.Tensor) -> set[int]:
    waiting, seen, leaves = [result.grad_fn], set(), set()
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(id(node.variable))
        waiting.extend(following for following, _ in node.next_functions)
    return leaves


@contextmanager
def _asked(weights: Sequence[torch.Tensor]) -> Iterator[None]:
    for weight in weights:
        weight.requires_grad_(True)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(False)
