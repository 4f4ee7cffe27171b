"""A rank task: a DHEN ranker (Zhang et al. 2022) trained on a wide table."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tuneyard.api.base import Fields, located
from tuneyard.api.data import DataService, Source, TrainData
from tuneyard.api.evaluation import Evaluation
from tuneyard.api.train import Auto, Batch, Checkpoint, Optimizer, Strategy, TrainTask
from tuneyard.api.transforms import Column, Transform, check_steps, leak

InteractionName = Literal["dlrm", "attention", "convolution", "linear", "dcn", "experts"]
EnsembleName = Literal["concatenation", "sum", "weighted_sum"]
ExchangeName = Literal["fp32", "fp16", "int8"]
Size = Annotated[int, Field(ge=1, le=65536)]
_PROGRAM = "tuneyard.ranking:RankerProgram"
"""Value of `TrainTask.program` that marks the model as no language model."""


class SparseColumn(Fields):
    """A column with an id, or a list of ids, and its embedding table."""

    name: Column = Field(description="name of the column, or of an entry of a map column: `id_features[7]`")
    rows: int = Field(
        default=100_000, ge=1, le=1 << 40, description="rows of its table; an id from 0 to rows - 1 has its own, others are hashed to one"
    )
    pooling: Literal["mean", "sum"] = Field(default="mean", description="how the embeddings of a list become one")
    length: int = Field(default=0, ge=0, le=65536, description="above 0: the column is a sequence, and its last `length` ids are used")


class RankFeatures(Fields):
    """Inputs of the ranker from a row."""

    dense: list[Column] = Field(default_factory=list, max_length=4096, description="columns with numbers; null and NaN are missing values")
    sparse: list[SparseColumn] = Field(default_factory=list, max_length=4096, description="columns with ids, lists of ids, or sequences")

    @model_validator(mode="after")
    def _has_some(self) -> Self:
        names = self.names
        if not names:
            raise ValueError("name at least one dense or sparse column")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]} is named twice: name each column once")
        return self

    @property
    def names(self) -> list[str]:
        return [*self.dense, *(column.name for column in self.sparse)]


class RankModel(Fields):
    """Layers of ensembles, each Norm(Ensemble + ShortCut), and a network on top."""

    layers: list[Annotated[list[InteractionName], Field(min_length=1, max_length=16)]] = Field(
        min_length=1, max_length=64, description="input side first; of each layer the interaction modules that stand side by side"
    )
    ensemble: EnsembleName = Field(
        default="concatenation",
        description="how a layer joins its modules: one behind the other, added, or added with a learned weight for each",
    )
    outputs: Size = Field(default=8, description="embeddings that each module gives")
    width: Size = Field(default=16, description="width of every embedding")
    hidden: list[Size] = Field(default_factory=lambda: [64], max_length=16, description="widths of the network on top")


class EmbeddingTables(Fields):
    """Storage and training of the tables. They are sharded over the ranks; row-wise Adagrad updates each row."""

    learning_rate: float = Field(default=0.05, gt=0, description="of the rows, in the schedule of the optimizer")
    rows: Literal["fp32", "fp16"] = Field(
        default="fp32", description="dtype of the rows; fp16 needs half the memory, with stochastic rounding"
    )
    sharding: Literal["table", "row", "column"] | Auto = Field(
        default="auto", description="share of a table per rank: whole tables, rows or columns; auto: by measured cost, as memory allows"
    )
    exchange: ExchangeName = Field(
        default="fp32", description="what embeddings and their gradients are sent as between workers; fp16 and int8 round them, see docs"
    )
    offload: Literal["none", "cpu"] = Field(default="none", description="cpu: tables of a GPU's rank stay in the memory of its host")


class RankTask(Fields):
    """Train a ranker, which predicts from a wide row whether a user clicks."""

    table: Source = Field(description="Parquet with the features and labels in columns")
    validation_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="share of rows held out for evaluation, by their features")
    validation: Source | None = Field(default=None, description="a separate table for evaluation, such as the next day; default: none")
    transforms: list[Transform] = Field(
        default_factory=list, max_length=1000, description="steps that make features from columns; the ranker keeps them for scoring"
    )
    features: RankFeatures
    label: Column = Field(default="label", description="column with 0 or 1 that is predicted")
    more_labels: list[Column] = Field(
        default_factory=list, max_length=64, description="further columns with 0 or 1, each predicted by its own output"
    )
    negative_rate: float = Field(
        default=1.0, gt=0, le=1, description="share of the rows with label 0 to train on; probabilities stay those of all rows"
    )
    model: RankModel
    tables: EmbeddingTables = Field(default_factory=EmbeddingTables)
    optimizer: Optimizer = Field(
        default_factory=lambda: Optimizer(learning_rate=1e-3, schedule="constant"), description="of everything but the tables"
    )
    batch: Batch = Field(default_factory=lambda: Batch(**{"global": 4096}))
    epochs: float | None = Field(default=None, gt=0, description="passes over the data; default: 1, unless steps is given")
    steps: int | None = Field(default=None, ge=1, description="optimizer steps, instead of epochs; default: as epochs says")
    strategy: Strategy | Auto = Field(default="auto", description="layout of everything but the tables over the workers")
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    slices: list[Column] = Field(
        default_factory=list,
        max_length=16,
        description="columns whose values divide held-out rows into slices; needs held-out rows",
    )
    shuffle: bool = Field(
        default=True, description="a new order of rows in each epoch, by the seed; false: in stored order, such as by time"
    )
    streaming: bool | None = Field(
        default=None,
        description="read the table while the task trains, window by window, instead of before; default: where there is a service",
    )
    service: DataService | None = Field(
        default=None, description="make rows of the streamed table on other machines than those of the ranks; default: beside the ranks"
    )
    shared: bool = Field(
        default=True,
        description="of a streamed table: where the machine or the Cluster names a place for shards that jobs of a team share, use it; "
        "false: none of these rows is kept there",
    )
    seed: int = Field(default=42, ge=0, le=2**32 - 1, description="seed of weights and data order")

    @model_validator(mode="after")
    def _names_each_column_once(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        if both := sorted({*self.labels} & {*self.features.names}):
            raise ValueError(f"{both[0]} is a label and a feature: the ranker would read what it has to predict")
        if twice := sorted({name for name in self.labels if self.labels.count(name) > 1}):
            raise ValueError(f"label {twice[0]} is named twice")
        if twice := sorted({name for name in self.slices if self.slices.count(name) > 1}):
            raise ValueError(f"{twice[0]} is named twice in slices")
        if self.validation is not None and self.validation_fraction:
            raise ValueError("give validation or validationFraction, not both")
        if self.service is not None and self.streaming is False:
            raise ValueError("service makes rows of a streamed table: leave streaming: false out")
        if self.is_streamed and self.validation_fraction:
            raise ValueError(
                "validationFraction needs all rows before the first step, and the table is streamed: hold rows out as a table of their own "
                "(validation), such as the next day"
            )
        if self.is_streamed and (self.negative_rate < 1 or any(step.op == "sampling" for step in self.transforms)):
            raise ValueError(
                "sampling and negativeRate leave a number of rows that is known only once all are read, and the table is streamed: "
                "leave them out, or draw the rows in a process task"
            )
        if self.slices and self.validation is None and not self.validation_fraction:
            raise ValueError("slices are of held-out rows: give validation or validationFraction")
        return self

    @model_validator(mode="after")
    def _makes_what_is_read(self) -> Self:
        if self.negative_rate < 1 and self.more_labels:
            raise located("with moreLabels, probabilities of rows that were drawn by one label cannot be corrected: give 1", "negativeRate")
        check_steps(self.transforms, self.features.names, self.labels, self.slices)
        steps = [(step.inputs, step.output) for step in self.transforms if step.output is not None]
        if said := leak(steps, self.features.names, self.labels):
            raise ValueError(said)
        return self

    @property
    def labels(self) -> list[str]:
        return [self.label, *self.more_labels]

    @property
    def is_streamed(self) -> bool:
        """Whether rows are read while the task trains."""
        return bool(self.streaming) or self.service is not None

    @property
    def named(self) -> list[str]:
        """All columns that are read from the transformed rows, without duplicates."""
        return list(dict.fromkeys([*self.features.names, *self.labels, *self.slices]))

    def sources(self) -> dict[str, Source]:
        """By field."""
        return {"table": self.table} | ({"validation": self.validation} if self.validation is not None else {})

    def as_training(self) -> TrainTask:
        """The rank task as ranks, placement and checkpoints see it: a training whose rows are not texts."""
        place = {"source": self.table.source, "from_task": self.table.from_task, "path": self.table.path}
        data = TrainData(
            **place,
            file_type=self.table.file_type,
            limit=self.table.limit,
            validation=self.validation,
            validation_fraction=self.validation_fraction,
            shuffle=self.shuffle,
            # The rows before a table's limit are known, so a limited table can be streamed too.
            streaming=(True if self.table.limit is None else None) if self.is_streamed else False,
            service=self.service,
            shared=self.shared,
        )
        return TrainTask(
            program=_PROGRAM,
            data=data,
            optimizer=self.optimizer,
            batch=self.batch,
            epochs=self.epochs,
            steps=self.steps,
            strategy=self.strategy,
            checkpoint=self.checkpoint,
            evaluation=self.evaluation,
            seed=self.seed,
        )
