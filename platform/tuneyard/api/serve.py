"""A serve task: a model and adapters of it behind OpenAI's API, for as long as somebody asks."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from tuneyard.api.base import Fields, Name
from tuneyard.api.limits import MOST_GPUS_PER_NODE
from tuneyard.api.quantities import Duration
from tuneyard.api.train import Precision

API_KEY = "TUNEYARD_API_KEY"
"""The variable of `spec.env` with the key that requests bring."""
SERVED_PORT = 8000
"""The port of a served model in its cluster."""

SERVED_URL = "TUNEYARD_SERVED_URL"
"""The variable of a head pod with the address of the models that its attempt serves."""

SERVING = "serving at "
"""Begin of the stage of an attempt whose server answers; the address follows."""

IDLE_S = "idle_s"
"""Of a result: the seconds without a request after which a server has ended."""


class ServedModel(Fields):
    """One model of a server: a whole model, or an adapter."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="output of a job or task, folder or URI of a model or adapter, or Hugging Face name; exactly one of name and from",
    )
    from_task: Name | None = Field(default=None, alias="from", description="train task of this job; exactly one of name and from")
    served_as: str | None = Field(
        default=None, min_length=1, max_length=256, description="what requests call it; default: the name of its folder"
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.name is None) == (self.from_task is None):
            raise ValueError("give exactly one of name and from")
        return self


class ServeTask(Fields):
    """Serve models by one vLLM engine: a base model, and any number of adapters of it."""

    models: list[ServedModel] = Field(min_length=1, max_length=64, description="at most one whole model; adapters have the same base")
    max_length: int | None = Field(
        default=None, ge=2, description="tokens of a prompt with its answer; default: the model's own, at most 8192"
    )
    precision: Precision = Field(default="auto", description="auto: bf16 where the GPU has it, else fp16; fp32 on cpu")
    tensor_parallel: int = Field(default=1, ge=1, le=MOST_GPUS_PER_NODE, description="GPUs of one machine that share the weights")
    trust_remote_code: bool = Field(default=False, description="run Python code that comes with the models")
    idle: Duration | None = Field(
        default=None,
        description="time without a request after which the server ends and gives its machines back, until the next request or "
        "`tuneyard resume`; default: never",
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for told, given in (
            ("served as", [model.served_as for model in self.models]),
            ("named", [model.name or model.from_task for model in self.models]),
        ):
            if twice := next((each for number, each in enumerate(given) if each is not None and each in given[:number]), None):
                raise ValueError(f"two models are {told} {twice}: give each its own servedAs, and name each once")
        return self

    @field_validator("idle")
    @classmethod
    def _leaves_time_for_a_request(cls, idle: float | None) -> float | None:
        if idle is not None and idle <= 0:
            raise ValueError("ends the server before its first request: write a time such as 15m, or leave idle out")
        return idle
