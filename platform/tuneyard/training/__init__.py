"""HF Trainer and TRL with DeepSpeed and PEFT, in one process, under torchrun or under Ray. Knows nothing of Ray or Kubernetes."""

from tuneyard.training.request import TrainRequest, TrainResult

__all__ = ["TrainRequest", "TrainResult"]
