"""Imports DeepSpeed for ranks, once, without torch.compile's backend and MLflow, which would each add a second to every rank's start.

`deepspeed.runtime.zero.muon` decorates a function with `torch.compile` at import, and DeepSpeed imports it for every optimizer. The
decorator loads torch._inductor at once. The variable makes the decorator return the function unchanged; no optimizer here calls it.
DeepSpeed's autotuning, which is not used here, imports MLflow where it is installed.
"""

import os

from tuneyard.warm import without

_SWITCH = "TORCHDYNAMO_DISABLE"
_kept = os.environ.get(_SWITCH)
os.environ[_SWITCH] = "1"
try:
    with without(["mlflow"]):
        import deepspeed
        import deepspeed.runtime.zero.muon.original_muon
        import deepspeed.runtime.zero.utils
finally:
    if _kept is None:
        del os.environ[_SWITCH]
    else:
        os.environ[_SWITCH] = _kept

__all__ = ["deepspeed"]
