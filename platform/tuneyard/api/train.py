"""A train task: model, data, method, objective, optimizer, batch, strategy, checkpoints."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from tuneyard.api.base import Fields, Name, located
from tuneyard.api.data import TrainData
from tuneyard.api.errors import BadInput
from tuneyard.api.evaluation import Evaluation
from tuneyard.api.limits import MOST_CONTEXT_RANKS, MOST_GPUS_PER_NODE, MOST_ROWS_PER_STEP

Auto = Literal["auto"]
Count = Annotated[int, Field(ge=1)]
RowsPerStep = Annotated[int, Field(ge=1, le=MOST_ROWS_PER_STEP)]
_Beta = Annotated[float, Field(ge=0, lt=1)]
Attention = Literal["auto", "flash", "sdpa", "eager"]
Precision = Literal["auto", "bf16", "fp16", "fp32"]
OffloadTarget = Literal["none", "cpu", "nvme"]
Program = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$")]
MethodName = Literal["full", "lora", "qlora", "dora"]
ALL_LINEAR, _HEAD = "all-linear", "lm_head"


class ModelRef(Fields):
    """The model that a task starts from: a Hugging Face name, a folder or URI, or the model of an earlier task."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Hugging Face name, local folder, or URI of a model, of an adapter, which stands for its base with it, or of the "
        "output of a run; hf://owner/name is never a folder; exactly one of name and from",
    )
    from_task: Name | None = Field(
        default=None, alias="from", description="name of the earlier task that makes the model; exactly one of name and from"
    )
    path: str | None = Field(default=None, description="path inside the output of `from`; default: the model that task made")
    revision: str | None = Field(
        default=None, description="commit, tag or branch on Hugging Face; pin it for jobs that must repeat; default: the newest"
    )
    init: Literal["pretrained", "scratch"] = Field(default="pretrained", description="scratch: random weights from config.json alone")
    attention: Attention = Field(
        default="auto", description="auto: flash where the GPU and the model have it, else sdpa, else eager; `tuneyard plan` says why"
    )
    trust_remote_code: bool = Field(default=False, description="run Python code that comes with the model")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.name is None) == (self.from_task is None):
            raise ValueError("give exactly one of name and from")
        if self.path is not None and self.from_task is None:
            raise ValueError("path needs from; put it into name instead")
        return self

    @property
    def is_given(self) -> bool:
        """False only where a program makes its own model, or an endpoint has one."""
        return self.name is not None or self.from_task is not None


class Adapter(Fields):
    """Low-rank adapter (LoRA, Hu et al. 2021): W + alpha/rank * B A."""

    rank: int = Field(default=16, description="r: inner dimension of the two factors")
    alpha: float | None = Field(default=None, gt=0, description="scale is alpha / rank; default: 2 * rank")
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0, description="share of the adapter's inputs that are dropped in training")
    targets: str | list[str] = Field(default="all-linear", description="all-linear, or names of modules")
    save_modules: list[str] = Field(default_factory=list, description="modules trained in full beside the adapter, such as lm_head")
    merge: bool = Field(default=False, description="also write merged full weights as an artifact")

    @field_validator("targets")
    @classmethod
    def _all_linear(cls, targets: str | list[str]) -> str | list[str]:
        """In lower case, which PEFT does not ask for."""
        return ALL_LINEAR if isinstance(targets, str) and targets.lower() == ALL_LINEAR else targets

    @property
    def names_head(self) -> bool:
        """Whether the head gets low-rank factors, by PEFT's reading of `targets`: names, dotted names, or a regular expression. all-linear
        leaves the head out, and `save_modules` takes precedence.
        """
        if _HEAD in self.save_modules:
            return False
        if not isinstance(self.targets, str):
            return any(target.rsplit(".", 1)[-1] == _HEAD for target in self.targets)
        if self.targets == ALL_LINEAR:
            return False
        try:
            return any(re.fullmatch(self.targets, name) for name in (_HEAD, f"model.{_HEAD}", f"language_model.{_HEAD}"))
        except re.error:
            return False


class QuantizedAdapter(Adapter):
    """QLoRA (Dettmers et al. 2023): the frozen weights are kept in 4 bits."""

    quantization: Literal["nf4", "fp4"] = Field(default="nf4", description="4-bit format of the frozen weights")
    double_quantization: bool = Field(default=True, description="quantise the scales too: about 0.37 bits less per parameter")


class Full(Fields):
    """All weights are trained."""


class Method(Fields):
    """Which weights are trained: exactly one of full, lora, qlora, dora."""

    full: Full | None = Field(default=None, description="all weights: write `full: {}`")
    lora: Adapter | None = Field(default=None, description="a low-rank adapter (Hu et al. 2021)")
    qlora: QuantizedAdapter | None = Field(default=None, description="a low-rank adapter on weights kept in 4 bits (Dettmers et al. 2023)")
    dora: Adapter | None = Field(default=None, description="a low-rank adapter that learns magnitudes separately (Liu et al. 2024)")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in ("full", "lora", "qlora", "dora") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of full, lora, qlora and dora; found {', '.join(given) or 'none'}")
        return self

    @property
    def name(self) -> MethodName:
        if self.full is not None:
            return "full"
        if self.qlora is not None:
            return "qlora"
        return "dora" if self.dora is not None else "lora"

    @property
    def adapter(self) -> Adapter | None:
        """The adapter's settings; None for full fine-tuning."""
        return self.qlora or self.lora or self.dora


class Optimizer(Fields):
    """The optimizer and its learning rate."""

    name: Literal["adamw", "adamw-8bit", "adafactor", "sgd"] = Field(
        default="adamw", description="update rule; adamw-8bit keeps its states in 8 bits (bitsandbytes)"
    )
    learning_rate: float = Field(default=2e-5, gt=0, description="highest learning rate, reached after warm-up")
    schedule: Literal["cosine", "linear", "constant", "inverse-sqrt", "wsd"] = Field(
        default="cosine", description="after warm-up; wsd: constant, then a linear decay over the last tenth"
    )
    warmup: float = Field(default=0.03, ge=0, description="below 1: share of all steps; from 1: steps")
    states: Literal["fp32", "bf16"] = Field(
        default="fp32", description="dtype of adamw's two running means; bf16: half the memory, with stochastic rounding"
    )
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled weight decay")
    betas: tuple[_Beta, _Beta] = Field(default=(0.9, 0.999), description="decay of AdamW's two running means")
    epsilon: float = Field(default=1e-8, gt=0, description="added to AdamW's denominator")
    max_grad_norm: float = Field(default=1.0, ge=0, description="gradients are clipped to this norm; 0: no clipping")


class Batch(Fields):
    """global = micro * gradient accumulation * copies of the model, in rows. Ranks that share a copy share its rows."""

    global_: RowsPerStep | Auto = Field(
        default=32,
        alias="global",
        description="rows per optimizer step, over all copies of the model; auto: the largest micro-batch that fits where the run begins, "
        "without accumulation",
    )
    micro: Count | Auto = Field(default="auto", description="rows per forward pass of one copy; auto: the largest that fits")

    @property
    def is_open(self) -> bool:
        """Whether the plan of the first attempt decides the rows of a step."""
        return self.global_ == "auto"

    @property
    def rows(self) -> int:
        """Rows of a step. Raises BadInput for `auto`: a plan decides it, and `TrainTask.with_rows` then names the number."""
        if isinstance(self.global_, int):
            return self.global_
        raise BadInput("batch.global is auto, and no plan has decided it", "set batch.global to a number of rows")

    def divides_over(self, workers: int) -> bool:
        """Whether `workers` can split the global batch into equal micro-batches."""
        parts = self.micro_batches
        return parts is None or (parts > 0 and parts % workers == 0)

    @property
    def micro_batches(self) -> int | None:
        """Micro-batches of a global batch to divide over workers; rows, if `micro` is auto. 0: `micro` does not divide the global batch.
        None: the global batch is open, and follows the workers.
        """
        if self.is_open:
            return None
        micro = 1 if self.micro == "auto" else self.micro
        return 0 if self.rows % micro else self.rows // micro


class Offload(Fields):
    """States that are kept outside the memory of the GPU."""

    optimizer: OffloadTarget = Field(default="none", description="place of optimizer states; needs ZeRO >= 1 (nvme: ZeRO 3)")
    parameters: OffloadTarget = Field(default="none", description="place of parameters; needs ZeRO 3")
    nvme_path: str = Field(default="/tmp/tuneyard-nvme", description="folder on a local NVMe disk")


class ShardingRule(Fields):
    """Your own cut of modules under tensor parallelism, in place of the automatic one. It is proven as the automatic one is, or refused."""

    match: str = Field(
        min_length=1,
        max_length=512,
        description="regular expression of Python, searched in the names of modules, such as `encoder.*fc1`; of several "
        "rules the first holds",
    )
    cut: Literal["columns", "rows", "none"] = Field(
        description="columns: along outputs; rows: along inputs, or the entries of an embedding; none: whole on each rank"
    )

    @field_validator("match")
    @classmethod
    def _is_an_expression(cls, match: str) -> str:
        try:
            re.compile(match)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"it is no regular expression: {error}") from error
        return match


class Strategy(Fields):
    """Layout of the task over its workers. The planner chooses each field at `auto`."""

    zero: Literal[0, 1, 2, 3] | Auto = Field(default="auto", description="ZeRO stage (Rajbhandari et al. 2020)")
    offload: Offload = Field(default_factory=Offload)
    tensor_parallel: int = Field(default=1, ge=1, le=MOST_GPUS_PER_NODE, description="ranks of one host that share each weight matrix")
    sharding_rules: list[ShardingRule] = Field(
        default_factory=list,
        max_length=64,
        description="of a program: modules that tensorParallel cuts as you say; the others as proven best",
    )
    sequence_parallel: bool = Field(
        default=False, description="tensor-parallel ranks also split the tokens between the matrices (Korthikanti et al. 2022)"
    )
    context_parallel: int = Field(
        default=1,
        ge=1,
        le=MOST_CONTEXT_RANKS,
        description="ranks that split each row along its tokens, for rows too long for one device; divides workers and heads",
    )
    shard_within: Literal["none", "host"] | Auto = Field(
        default="none",
        description="host: ZeRO-3 shards over the ranks of a host and replicates across hosts; none: over all ranks; "
        "auto: whichever is faster over the links between hosts",
    )
    quantised_all_reduce: Literal["none", "int8", "fp8"] = Field(
        default="none", description="gradients cross hosts in blocks of 8 bits, with error feedback"
    )
    recompute: bool | Auto = Field(default="auto", description="activation checkpointing: less memory, about a third more compute")
    precision: Precision = Field(default="auto", description="auto: bf16 where the device has it, else fp16; fp32 on cpu")
    liger: bool | Auto = Field(default="auto", description="Liger kernels, which fuse steps and keep less in memory; GPUs only")
    compile: Literal["layers", "none"] | Auto = Field(
        default="auto", description="layers: torch.compile of each decoder layer, which takes a minute at the start; auto: none"
    )


class Checkpoint(Fields):
    """Interval and number of checkpoints."""

    every_steps: Count | Auto = Field(
        default="auto", description="auto: by the cost of a save and the failure rate of machines (Young/Daly)"
    )
    keep: int = Field(default=3, ge=1, description="newest committed checkpoints that stay")


class Preference(Fields):
    """Settings of `objective: dpo` (Rafailov et al. 2023)."""

    beta: float = Field(default=0.1, gt=0, description="strength of the pull towards the reference model")
    loss: Literal["sigmoid", "hinge", "ipo"] = Field(default="sigmoid", description="loss on the margin between the two answers")


def no_model(_: dict[str, Any]) -> ModelRef:
    """Default for a program that makes its own model, and for an endpoint, which has one: neither `name` nor `from`. It takes data so that
    no schema includes it as a default.
    """
    return ModelRef.model_construct(name=None, from_task=None)


class TrainTask(Fields):
    """Fine-tune (or train from scratch) a language model; or train anything else, by a program."""

    model: ModelRef = Field(
        default_factory=no_model,
        validate_default=False,
        description="the model that the task starts from; required, unless a program makes its own",
    )
    program: Program | None = Field(
        default=None,
        max_length=512,
        description="module:object of your own Python code, an object with collate, loss and predict that defines the training "
        "(docs/program.md); default: fine-tuning of a language model",
    )
    program_dir: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="folder with the program's module: a path or a URI; default: the folder of the JobSpec file, "
        "from which `tuneyard submit` ships the module and what it imports",
    )
    data: TrainData
    method: Method = Field(default_factory=lambda: Method(full=Full()))
    objective: Literal["sft", "clm", "dpo"] = Field(default="sft", description="supervised, plain next-token, or direct preference")
    preference: Preference = Field(default_factory=Preference)
    router_loss: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="weight of the loss that spreads tokens over the experts of a mixture; 0: none; "
        "default: the model's own (router_aux_loss_coef)",
    )
    optimizer: Optimizer = Field(default_factory=Optimizer)
    batch: Batch = Field(default_factory=Batch)
    epochs: float | None = Field(default=None, gt=0, description="passes over the data; default: 1, unless steps is given")
    steps: int | None = Field(default=None, ge=1, description="optimizer steps, instead of epochs; default: as epochs says")
    strategy: Strategy | Auto = Field(
        default="auto", description="layout over the workers: auto (the planner chooses), or a group of settings such as {zero: 3}"
    )
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    seed: int = Field(default=42, ge=0, le=2**32 - 1, description="seed of weights, dropout and data order")
    proof: Literal["full", "skip"] = Field(
        default="full",
        description="full: prove before the first step that weights are reached and that recomputation changes no gradient, "
        "and after the last that what is saved is what was trained; skip: neither",
    )

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if self.program is None and not self.model.is_given:
            raise located("required field is missing", "model")
        if self.program is None and self.program_dir is not None:
            raise ValueError("programDir needs program: name the module and object in it")
        return self

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self

    @property
    def uses_bitsandbytes(self) -> bool:
        """Whether weights are kept in 4 bits, or optimizer states in 8 bits."""
        return self.method.qlora is not None or self.optimizer.name == "adamw-8bit"

    @property
    def layout(self) -> Strategy:
        """The strategy as a group: `auto` becomes a Strategy with all fields at `auto`."""
        return Strategy() if self.strategy == "auto" else self.strategy

    @property
    def ranks_per_replica(self) -> int:
        """Ranks that together hold one copy of the model and see the same rows: tensor-parallel times context-parallel."""
        return self.layout.tensor_parallel * self.layout.context_parallel

    def divides_over(self, workers: int) -> bool:
        """Whether `workers` form whole replicas that can split the global batch into equal micro-batches."""
        replicas, rest = divmod(workers, self.ranks_per_replica)
        return not rest and self.batch.divides_over(replicas)

    def with_rows(self, rows: int, micro: int | Auto | None = None) -> Self:
        """The task with a decided number of rows per step. `micro`: another micro-batch; None: as it is."""
        changed = {"global_": rows} | ({"micro": micro} if micro is not None else {})
        return self.model_copy(update={"batch": self.batch.model_copy(update=changed)})
