"""DeepSpeed as ranks use it, imported once: without torch.compile's backend, which takes 1 to 2 s of every rank's start.

`deepspeed.runtime.zero.muon` decorates a function by `torch.compile` when it is imported, and DeepSpeed imports it for whatever
optimizer; the decorator loads torch._inductor at once. The variable makes the decorator return the function as it is, which no optimizer
here calls.
"""

import os

_SWITCH = "TORCHDYNAMO_DISABLE"
_kept = os.environ.get(_SWITCH)
os.environ[_SWITCH] = "1"
try:
    import deepspeed
    import deepspeed.runtime.zero.muon.original_muon
    import deepspeed.runtime.zero.utils
finally:
    if _kept is None:
        del os.environ[_SWITCH]
    else:
        os.environ[_SWITCH] = _kept

__all__ = ["deepspeed"]
