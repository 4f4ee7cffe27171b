"""A score task: a language model answers prompts, or a ranker scores rows of a table. The output is rows, with metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from tuneyard.api.answers import AnswerAt, AnswerForm, Bleu, Choices, Embedding, Ignored, Numeric, PassAt, check_answers
from tuneyard.api.base import Fields, located
from tuneyard.api.data import ScoreData, Source
from tuneyard.api.endpoint import Endpoint
from tuneyard.api.limits import MOST_GPUS_PER_NODE
from tuneyard.api.lm_eval import as_data, check_harness
from tuneyard.api.train import Auto, Count, ModelRef, Precision, no_model
from tuneyard.metrics import FIGURES, METRICS, needing
from tuneyard.metrics.answers import IGNORED
from tuneyard.metrics.own import column_of

if TYPE_CHECKING:
    MetricName = str
else:
    MetricName = Literal[
        tuple(
            name for name in METRICS if name not in [name for need in ("verdict", "preference") for name in needing(need, METRICS.values())]
        )
    ]
JUDGED = needing("verdict", METRICS.values())
"""Metrics of judges of one answer, which need no name in a JobSpec."""
PREFERRED = needing("preference", METRICS.values())
"""The same of judges of two answers."""
_ANSWER = "output"
"""The column of a score task's output that holds the answers."""
OwnMetric = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(:lower)?$", max_length=512)
]
_TAKEN = {*METRICS, *FIGURES, "row", "output", "error", "finish_reason", "input_tokens", "output_tokens", "latency_s", "nll"}
_TAKEN |= {
    "reasoning",
    "reference_tokens",
    "extracted",
    "samples",
    "choice_logs",
    "unanswered",
    "row_hash",
    "charged",
    "cost",
    "cost_per_1000_rows",
    "embedding_cost",
    *(metric.sums_column for metric in METRICS.values() if metric.sums_column),
}
MOST_METRICS = 64
"""API servers refuse CEL rules over longer lists, by their estimated cost."""
MOST_IN_FLIGHT = 256
"""vLLM's own default on GPUs of 40 to 80 GB."""
_WITHOUT_REFERENCE = [name for name in METRICS if name not in [*needing("reference", METRICS.values()), *JUDGED, *PREFERRED]]


def _needs_reference() -> str:
    return f"all but {', '.join(_WITHOUT_REFERENCE)} need" if _WITHOUT_REFERENCE else "all need"


class Generation(Fields):
    """How answers are sampled."""

    max_tokens: int = Field(default=256, ge=1, description="tokens of an answer, at most")
    temperature: float = Field(default=0.0, ge=0, description="0: always the likeliest token")
    top_p: float = Field(default=1.0, gt=0, le=1, description="sample from the likeliest tokens that have this share of the probability")
    top_k: int = Field(default=0, ge=0, description="sample from the K likeliest tokens; 0: all tokens")
    stop: list[str] = Field(default_factory=list, description="texts that end an answer, beside the end token")
    samples: int = Field(default=1, ge=1, le=256, description="answers to each prompt, for pass_at_k; other metrics see the first one")
    seed: int | None = Field(default=None, description="makes sampling repeatable; default: a new seed each time")
    json_schema: dict[str, Any] | Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = Field(
        default=None, alias="schema", description="JSON schema that each answer follows, or the path or URI of its file; default: free text"
    )


class Engine(Fields):
    """Settings of one vLLM engine, or an endpoint in its place."""

    tensor_parallel: int = Field(default=1, ge=1, le=MOST_GPUS_PER_NODE, description="GPUs of one engine, which share each weight matrix")
    batch: Count | Auto = Field(
        default=64, description=f"sequences in flight per engine; auto: as many as its KV cache holds, at most {MOST_IN_FLIGHT}"
    )
    max_length: Count | Auto = Field(default="auto", description="prompt and answer tokens; auto: the model's own limit, at most 8192")
    precision: Precision = Field(
        default="auto", description="of weights and activations; auto: bf16 where the GPU has it, else fp16; fp32 on cpu"
    )
    memory_fraction: float = Field(default=0.9, gt=0, le=1, description="share of GPU memory for weights and KV cache")
    kv_cache: str | None = Field(
        default=None, description="KV cache on cpu, such as 2Gi; default: enough for a whole batch, at most 4Gi; GPUs use memoryFraction"
    )
    step_tokens: Count | Auto = Field(
        default="auto",
        description="tokens of one step of the engine: longer prompts take several steps, in which other answers go on; auto: as vLLM "
        "for offline engines; at least batch",
    )
    prefix_cache: bool | Auto = Field(
        default="auto", description="keep the KV cache of prompts for prompts that begin alike; auto: as vLLM does for the model"
    )
    eager: bool = Field(default=False, description="no CUDA graphs and no compilation: starts sooner, runs slower")
    endpoint: Endpoint | None = Field(
        default=None, description="a server with OpenAI's API that answers instead; default: vLLM engines of the job"
    )

    @model_validator(mode="after")
    def _steps_hold_a_batch(self) -> Self:
        if self.step_tokens != "auto" and self.step_tokens < self.most_in_flight:
            reason = f"{self.step_tokens} is below the {self.most_in_flight} sequences in flight, of which a step gives each a token: "
            raise located(f"{reason}raise it, or lower batch", "stepTokens")
        return self

    @property
    def most_in_flight(self) -> int:
        """`batch`, or the bound of `auto`."""
        return MOST_IN_FLIGHT if self.batch == "auto" else self.batch

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        """An endpoint has settings of its own."""
        others = sorted(self.model_fields_set - {"endpoint"})
        if self.endpoint is not None and others:
            names = ", ".join(type(self).model_fields[name].alias or name for name in others)
            raise ValueError(f"{names} of a vLLM engine has no meaning at an endpoint: leave it out")
        return self


class Windows(Fields):
    """Rows that are judged together: windows of rows or, with `column`, of time."""

    every: float = Field(gt=0, description="rows of a window, in the order of the table; with column its width there")
    column: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="column of numbers or timestamps that assigns rows to windows (`every` in seconds); default: the rows' order",
    )


class RankerScoring(Fields):
    """Scoring of a table by a ranker, and evaluation of the scores if the table has labels."""

    batch: int = Field(default=4096, ge=1, le=1 << 20, description="rows that are scored at a time, per instance")
    slices: list[Annotated[str, StringConstraints(min_length=1, max_length=512)]] = Field(
        default_factory=list, max_length=16, description="columns whose values divide rows into slices with their own figures"
    )
    slice_values: int = Field(default=32, ge=1, le=1000, description="slices per column, for its most frequent values")
    windows: Windows | None = Field(default=None, description="figures by window of rows or of time; default: all rows together")
    base_rate: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="rate of positive labels, such as in training; its constant prediction is the reference of figures; default: none",
    )


class Judge(Fields):
    """The model scores answers of another model, instead of answering."""

    rubric: str = Field(min_length=1, max_length=20_000, description="what a good answer is, and what the numbers of the scale mean")
    scale: list[float] = Field(default=[1.0, 5.0], min_length=2, max_length=2, description="the lowest and the highest score")
    against: Source | None = Field(
        default=None,
        description="answers of another score task to the same rows: the judge sees both answers, in both orders, and names the better "
        "one; default: it scores each answer alone, on the scale",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.against is None:
            return self
        if "scale" in self.model_fields_set:
            raise ValueError("a judge of two answers gives no score: leave scale or against out")
        if others := sorted({"limit", "columns", "roles", "template", "split"} & self.against.model_fields_set):
            raise located(f"leave {others[0]} out: both answers are read as data says", "against", others[0])
        return self

    @field_validator("scale")
    @classmethod
    def _ordered(cls, scale: list[float]) -> list[float]:
        if scale[0] >= scale[1]:
            raise ValueError("give the lowest and the highest score, such as [1, 5]")
        return scale


class ScoreTask(Fields):
    """Score a data set with a language model, or a table with a ranker."""

    model: ModelRef = Field(
        default_factory=no_model,
        validate_default=False,
        description="the model that is scored; required, unless engine.endpoint names the model of a server",
    )
    data: ScoreData
    judge: Judge | None = Field(
        default=None, description="score the answers in the column `data.answer` by a rubric; default: answer the prompts"
    )
    generation: Generation = Field(default_factory=Generation)
    engine: Engine = Field(default_factory=Engine)
    metrics: list[MetricName] = Field(
        default_factory=list, max_length=MOST_METRICS, description=f"metrics to compute; {_needs_reference()} data.reference"
    )
    own_metrics: list[OwnMetric] = Field(
        default_factory=list,
        max_length=16,
        description="module:function of your own Python code, a number of each answer; letters, digits and _ of "
        "ASCII; higher is better, unless :lower follows",
    )
    metrics_dir: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="folder with the modules of ownMetrics: a path or a URI; default: the folder of the JobSpec file, "
        "from which `tuneyard submit` ships the modules and what they import",
    )
    answer: AnswerForm | AnswerAt | None = Field(
        default=None,
        description="which part of an output is its answer; references that hold such a part are cut too. boxed: the last box of LaTeX; "
        "number: the last number; choice: the letter of a choice; or a group with first, last or json; default: all of it",
    )
    ignore: list[Ignored] = Field(
        default_factory=list, max_length=len(IGNORED), description="what exact_match leaves out of answers and references"
    )
    bleu: Bleu = Field(default_factory=Bleu, description="of the metric bleu")
    numeric: Numeric = Field(default_factory=Numeric, description="of the metric numeric")
    pass_at: PassAt | None = Field(default=None, description="of the metric pass_at_k, which needs it")
    choices: Choices | None = Field(
        default=None, description="take the likeliest of some choices, for acc, acc_norm and calibration_error; default: generate answers"
    )
    embedding: Embedding | None = Field(
        default=None, description="model of the metric embedding_similarity, which needs it; it runs on the CPU of each worker"
    )
    ranking: RankerScoring = Field(default_factory=RankerScoring, description="of a ranker alone")
    rows_per_part: Count | Auto = Field(
        default="auto",
        description="rows per committed Parquet part: the loss of a kill, at most, per engine; auto: 512; 128 at an "
        "endpoint; 65536 if a ranker scores",
    )
    max_error_fraction: float = Field(default=0.1, ge=0, le=1, description="share of rows with errors, 0 to 1, above which the task fails")

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.engine.endpoint is None and not self.model.is_given:
            raise located("required field is missing", "model")
        if self.engine.endpoint is not None and self.model.is_given:
            raise located("the endpoint answers with engine.endpoint.model: leave this model out", "model")
        return self

    @field_validator("metrics", mode="before")
    @classmethod
    def _no_tasks(cls, metrics: Any) -> Any:
        """Metrics are names that API servers know; a task of lm-evaluation-harness brings rows too."""
        if (instead := as_data(metrics)) is not None:
            raise ValueError(f"tasks of lm-evaluation-harness are data, not metrics: write data: {{{instead}}}, and leave metrics out")
        return metrics

    @model_validator(mode="after")
    def _leaves_the_rest_to_the_harness(self) -> Self:
        check_harness(self)
        return self

    @model_validator(mode="after")
    def _judges_or_answers(self) -> Self:
        if self.judge is not None and (self.metrics or self.own_metrics):
            raise ValueError("a judge's own answers have no metrics: leave metrics out, or name them in the task whose answers it judges")
        if self.judge is None and self.data.answer is not None:
            raise ValueError("data.answer is what a judge scores: give judge, or leave it out")
        return self

    @model_validator(mode="after")
    def _embeds_for_a_metric(self) -> Self:
        asked = bool(needing("similarity", [METRICS[name] for name in self.metrics]))
        if asked and self.embedding is None:
            raise located("embedding_similarity needs a model of sentence embeddings: give embedding.model", "embedding")
        if not asked and self.embedding is not None:
            raise located("no metric uses it: add embedding_similarity to metrics, or leave embedding out", "embedding")
        return self

    @model_validator(mode="after")
    def _measures_answers(self) -> Self:
        check_answers(self)
        return self

    @model_validator(mode="after")
    def _names_each_column_once(self) -> Self:
        if self.metrics_dir is not None and not self.own_metrics:
            raise ValueError("metricsDir needs ownMetrics: name the functions in it")
        columns = [column_of(name) for name in self.own_metrics]
        for column in columns:
            if columns.count(column) > 1:
                raise ValueError(f"two of ownMetrics are called {column}: a metric has the name of its function")
            if column in _TAKEN:
                raise ValueError(f"ownMetrics: {column} is a name of Tuneyard's: call the function something else")
        return self

    @property
    def measured(self) -> list[str]:
        """Names of the metrics of its rows."""
        if self.judge is None:
            return [*self.metrics, *self.own_metrics]
        return [*JUDGED] if self.judge.against is None else [*PREFERRED]

    @property
    def rows_to_score(self) -> ScoreData:
        """Its data, with the column of the answers that a judge scores."""
        return self.data if self.judge is None or self.data.answer else self.data.model_copy(update={"answer": _ANSWER})

    @property
    def rows_against(self) -> ScoreData | None:
        """The same rows with the other answers, of a judge of two answers."""
        if self.judge is None or self.judge.against is None:
            return None
        place = {name: getattr(self.judge.against, name) for name in ("source", "from_task", "path", "file_type")}
        return self.rows_to_score.model_copy(update=place)
