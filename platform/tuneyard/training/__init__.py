"""Training: one function per rank, `train(request)`, which runs alone, under torchrun, or in a Ray worker, and depends on none of them.

Hugging Face Trainer, DeepSpeed and PEFT do the work. This room configures them, measures every step, and decides when a checkpoint or a
model counts as saved. It is loaded lazily: importing it loads neither torch nor transformers.
"""

from typing import TYPE_CHECKING, Any

from tuneyard.training.request import TrainRequest, TrainResult

if TYPE_CHECKING:
    from tuneyard.training.entry import train

__all__ = ["TrainRequest", "TrainResult", "train"]


def __getattr__(name: str) -> Any:
    if name != "train":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from tuneyard.training.entry import train

    return train
