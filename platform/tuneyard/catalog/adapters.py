"""The matrices that a LoRA adapter adapts, and the trained parameters of a method: like PEFT, without PEFT."""

from __future__ import annotations

import difflib

from tuneyard.api import Adapter, BadInput, Method
from tuneyard.catalog.shapes import ModelShape, Projection


def adapted_projections(shape: ModelShape, adapter: Adapter) -> frozenset[Projection]:
    """The projections that the adapter's targets name. `all-linear` means every projection that PEFT can adapt, except the head.

    A dotted target is recognised by its last part. Raises BadInput for an unknown name, and if only one of two fused matrices is named. The
    names of an estimated shape are not known: all count here, and PEFT checks them.
    """
    adaptable = [p for p in shape.projections if p.targets]
    if adapter.targets == "all-linear":
        return frozenset(p for p in adaptable if p.stage != "head")
    given = [adapter.targets] if isinstance(adapter.targets, str) else adapter.targets
    names = {target.rsplit(".", 1)[-1] for target in given}
    known = sorted({name for p in adaptable for name in p.targets})
    if not shape.exact and names - set(known):
        return frozenset(p for p in adaptable if p.stage != "head")
    for name in sorted(names - set(known)):
        near = difflib.get_close_matches(name, known, n=3)
        raise BadInput(
            f"a {shape.model_type} model has no module {name!r} that LoRA can adapt",
            f"use all-linear, or some of: {', '.join(near or known)}",
        )
    for p in adaptable:
        missing = sorted(set(p.targets) - names)
        if missing and len(missing) < len(p.targets):
            raise BadInput(
                f"LoRA targets name only a part of {p.name}, which the model keeps fused", f"add {', '.join(missing)} to targets"
            )
    return frozenset(p for p in adaptable if set(p.targets) <= names)


def trainable_parameters(shape: ModelShape, method: Method) -> int:
    """Parameters that get gradients, over all ranks: all of them for full, otherwise A, B (and DoRA's magnitudes) and saved modules."""
    adapter = method.adapter
    if adapter is None:
        return shape.parameters
    low_rank = sum(
        p.layers * p.copies * (p.adapter_weights(adapter.rank) + (p.outputs if method.dora else 0))
        for p in adapted_projections(shape, adapter)
    )
    saved = sum(p.parameters for p in saved_projections(shape, adapter))
    return low_rank + saved + (shape.embedding_parameters if trains_embedding(shape, method) else 0)


def saved_projections(shape: ModelShape, adapter: Adapter) -> frozenset[Projection]:
    """The projections that are trained in full beside the adapter."""
    return frozenset(p for p in shape.projections if p.name in adapter.save_modules)


def trains_embedding(shape: ModelShape, method: Method) -> bool:
    """Whether the token embedding gets gradients, so that they flow down to it through every layer."""
    return method.adapter is None or shape.embedding_name in method.adapter.save_modules
