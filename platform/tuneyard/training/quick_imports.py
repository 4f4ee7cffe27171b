"""Imports the libraries of a rank in half the processor time: without packages that no rank uses, and without garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tuneyard.warm import without

UNUSED = (
    *("comet_ml", "sklearn", "scipy", "PIL", "torchvision", "torchaudio", "torchcodec", "librosa"),
    *("tensorboard", "wandb", "mlflow", "optuna", "lightgbm"),
)
"""Packages for other rooms. transformers, PEFT, accelerate and DeepSpeed would import them only because they are installed."""


@contextmanager
def quick_imports(absent: Sequence[str] = UNUSED) -> Iterator[None]:
    """Import within the block, in a process that does nothing but train. `absent`: packages that seem not to be installed (`warm.without`).

    What is alive at the end is never collected. Collections while modules are loaded take a quarter of the time, and find nothing.
    """
    gc.disable()
    try:
        with without(absent):
            yield
    finally:
        gc.freeze()
        gc.enable()
