"""The description of a ranker: its features, its layers and its labels. A value, which is stored as JSON beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from tuneyard.api import BadInput
from tuneyard.api.rank import EnsembleName, InteractionName
from tuneyard.api.transforms import leak
from tuneyard.data.tables import Pipeline

if TYPE_CHECKING:
    from tuneyard.ranking.ranker import Ranker
    from tuneyard.ranking.tables.tables import Tables

Interaction = InteractionName
INTERACTIONS: tuple[Interaction, ...] = get_args(InteractionName)
ENSEMBLES: tuple[EnsembleName, ...] = get_args(EnsembleName)
Pooling = Literal["mean", "sum"]
POOLINGS: tuple[Pooling, ...] = ("mean", "sum")


@dataclass(frozen=True)
class SparseFeature:
    """A category, or a list of them. `rows`: of its table; an id outside of 0 to rows - 1 is hashed into it.

    `pooling`: mean or sum over the embeddings of a list. `length`: the list is a sequence, and only its last `length` ids count, in order.
    """

    name: str
    rows: int
    pooling: Pooling = "mean"
    length: int = 0
    texts: bool | None = None
    """Whether its ids are hashes of texts in the training rows; None: not known."""

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS or not isinstance(self.name, str) or not (type(self.rows) is type(self.length) is int):
            raise BadInput(
                f"the feature {self.name} is invalid: {self}", f"rows and length are whole numbers, pooling {' or '.join(POOLINGS)}"
            )
        if self.rows < 1:
            raise BadInput(f"the table of {self.name} has {self.rows} rows", "give a table at least one row")
        if self.length < 0:
            raise BadInput(f"{self.name} has a length of {self.length}", "give 0 for a bag of ids, or the number of last ids that count")


@dataclass(frozen=True)
class EnsembleLayer:
    """One layer, Norm(Ensemble(modules) + ShortCut). Each module gives `outputs` embeddings, which `ensemble` joins."""

    modules: tuple[Interaction, ...]
    outputs: int = 8
    ensemble: EnsembleName = "concatenation"

    def __post_init__(self) -> None:
        if unknown := [name for name in self.modules if name not in INTERACTIONS]:
            raise BadInput(f"no interaction module is called {unknown[0]}", f"name some of: {', '.join(INTERACTIONS)}")
        if not self.modules or type(self.outputs) is not int or self.outputs < 1:
            raise BadInput("a layer has no module, or no output", "name at least one module, and one output of each")
        if self.ensemble not in ENSEMBLES:
            raise BadInput(f"no ensemble is called {self.ensemble}", f"name one of: {', '.join(ENSEMBLES)}")

    @property
    def joined(self) -> int:
        """Embeddings that the layer gives to the next one."""
        return self.outputs * (len(self.modules) if self.ensemble == "concatenation" else 1)

    def to_dict(self) -> dict[str, Any]:
        """The layer for JSON. A concatenation has no key for it, so that versions without other ensembles can read it."""
        plain = {"modules": self.modules, "outputs": self.outputs}
        return plain if self.ensemble == "concatenation" else plain | {"ensemble": self.ensemble}


@dataclass(frozen=True)
class RankerConfig:
    """A DHEN ranker (Zhang et al. 2022).

    `dense`: names of numbers; `sparse`: categories and sequences; `width`: of every embedding; `layers`: input side first; `hidden`: widths
    of the network on top; `tasks`: names of the labels, each with its own logit. Raises BadInput for a ranker without features.

    `transforms`: steps that make features and labels from the columns of a table. The other fields name columns after these steps.
    `text_inputs`: for each column that the steps read, whether it held texts in the training rows.
    """

    dense: tuple[str, ...]
    sparse: tuple[SparseFeature, ...]
    layers: tuple[EnsembleLayer, ...]
    width: int = 16
    hidden: tuple[int, ...] = (64,)
    tasks: tuple[str, ...] = ("label",)
    transforms: Pipeline = field(default_factory=Pipeline, hash=False)
    text_inputs: Mapping[str, bool] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        names = [*self.features, *self.tasks]
        if not self.dense and not self.sparse:
            raise BadInput("the ranker has no features", "name dense or sparse columns")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(f"{twice[0]} is named twice among features and labels", "name each column once")
        if not self.tasks:
            raise BadInput("the ranker has no label", "name the column with the label in tasks")
        if any(type(size) is not int or size < 1 for size in (self.width, *self.hidden)):
            raise BadInput("a width of the ranker is no whole number, or below 1", "give widths of 1 and more")
        if self.transforms.samples:
            raise BadInput(
                "a ranker's transforms hold sampling, and a ranker predicts of every row", "sample the rows that it is trained on"
            )
        if said := leak(self.transforms.made, self.features, self.tasks):
            raise BadInput(said, "leave the feature out, or make it from another column")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, dense ones first."""
        return (*self.dense, *(feature.name for feature in self.sparse))

    def build(self, tables: Tables | None = None) -> Ranker:
        """The ranker, with fresh weights. `tables`: by default whole ones, whose weights follow from torch's seed."""
        from tuneyard.ranking.ranker import Ranker  # late: a ranker needs torch, its configuration does not

        return Ranker(self, tables)

    def with_texts(self, texts: Mapping[str, bool], inputs: Mapping[str, bool] | None = None) -> RankerConfig:
        """A copy that records whether the ids of each sparse feature, and the `inputs` of its transforms, are texts."""
        sparse = tuple(replace(feature, texts=texts.get(feature.name)) for feature in self.sparse)
        return replace(self, sparse=sparse, text_inputs=dict(inputs or {}))

    def to_dict(self) -> dict[str, Any]:
        """The config for JSON. Without transforms it has no key for them, so that versions without transforms can read it."""
        values = asdict(replace(self, transforms=Pipeline())) | {"layers": [layer.to_dict() for layer in self.layers]}
        del values["transforms"], values["text_inputs"]
        if not self.transforms.steps:
            return values
        return values | {"transforms": [step.model_dump() for step in self.transforms.steps], "text_inputs": dict(self.text_inputs)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RankerConfig:
        """The config from `to_dict`. Raises BadInput for values of another version, or of another kind."""
        try:
            return cls(
                dense=tuple(values["dense"]),
                sparse=tuple(SparseFeature(**each) for each in values["sparse"]),
                layers=tuple(EnsembleLayer(**{**each, "modules": tuple(each["modules"])}) for each in values["layers"]),
                width=values["width"],
                hidden=tuple(values["hidden"]),
                tasks=tuple(values["tasks"]),
                transforms=Pipeline.of(values.get("transforms", ())),
                text_inputs={str(name): bool(texts) for name, texts in values.get("text_inputs", {}).items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"this is no ranker's config: {error}", "load a folder that tuneyard.ranking.save wrote") from error
