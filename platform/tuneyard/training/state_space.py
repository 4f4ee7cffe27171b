"""Matrices of state-space models that an adapter cannot reach.

Their layers hand these weights to a kernel instead of calling the module, so that LoRA beside the module would be trained without effect.
Jamba's router is recorded from inside the module, where LoRA has matrices of its own. Source: the modules of transformers 5.19, by a test.
PEFT refuses some of them, by a list of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuneyard.api import BadInput

_READ_PAST = {
    **dict.fromkeys(("mamba", "falcon_mamba"), ("dt_proj", "out_proj", "x_proj")),
    **dict.fromkeys(("mamba2", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "zamba2"), ("out_proj",)),
    "jamba": ("dt_proj", "router"),
}


def out_of_reach(model_type: str, targets: str | Sequence[str]) -> list[str]:
    """Names of modules to leave out of `targets` (as of the JobSpec): for all-linear those of the model; raises BadInput for named ones."""
    beyond = _READ_PAST.get(model_type, ())
    if targets == "all-linear":
        return list(beyond)
    named = sorted({target.rsplit(".", 1)[-1] for target in ([targets] if isinstance(targets, str) else targets)} & set(beyond))
    if named:
        raise BadInput(
            f"LoRA on {', '.join(named)} of a {model_type} model would have no effect: its layers read these weights past the adapter",
            f"take {', '.join(named)} out of targets, or use all-linear, which leaves them out",
        )
    return []
