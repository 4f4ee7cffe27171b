"""What a CRD's plain schema cannot say, in CEL: the API server refuses these before an operator sees the object.

Each rule repeats a validator of the model named here, for `kubectl apply`; `api` remains the judge. What stands
behind a union (a strategy is `auto` or a group) is invisible to CEL, and is refused at admission by `check_rules` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuneyard.api.base import RAY_TOKEN_VARIABLES
from tuneyard.api.jobspec import ONE_CLUSTER
from tuneyard.api.local_files import ADVICE
from tuneyard.api.tasks import LOGS
from tuneyard.metrics import METRICS, Metric

CelRule = Mapping[str, str]


def _rule(rule: str, message: str) -> CelRule:
    return {"rule": rule, "message": message}


def _exactly_one(*fields: str) -> CelRule:
    given = ", ".join(f"has(self.{field})" for field in fields)
    return _rule(f"[{given}].exists_one(given, given)", f"give exactly one of {', '.join(fields)}")


_PLACE = (
    _exactly_one("source", "from"),
    _rule("!has(self.path) || has(self.from)", "path goes with from; put it into source instead"),
    _rule("!has(self.source) || self.source.contains('://') || self.source.startsWith('/')", f"source: a path beside the file: {ADVICE}"),
)


_WITH_MIX = _rule(
    "[has(self.source), has(self.from), has(self.mix) && size(self.mix) > 0].exists_one(given, given)",
    "give exactly one of source, from, mix",
)


def needs_no_reference(metrics: Mapping[str, Metric]) -> str:
    without = [metric.name for metric in metrics.values() if "reference" not in metric.needs]
    return f"self.metrics.all(m, m in {without})" if without else "size(self.metrics) == 0"


_POSITIVE_RANK = _rule("self.rank >= 1", "the rank of an adapter is at least 1")

CEL_RULES: Mapping[str, Sequence[CelRule]] = {
    "Job": (
        _rule("!has(self.template)", "template: templates are not filled in yet; write the defaults of the ModelTemplate into the tasks"),
        _rule(
            "self.tasks.all(t, !has(t.tune) || "
            "self.tasks.exists(other, other.name == t.tune.task && (has(other.train) || has(other.rank))))",
            "tune.task: only a train or rank task can be tuned; name one",
        ),
    ),
    "Placement": (_rule("!has(self.spread) || self.spread == 'never'", f"spread: {ONE_CLUSTER}"),),
    "Task": (
        _exactly_one("train", "score", "tune", "rank", "process"),
        _rule(f"self.name != '{LOGS}'", f"name: {LOGS} is the folder of all tasks' logs in the output"),
    ),
    "Method": (_exactly_one("full", "lora", "qlora", "dora"),),
    "Adapter": (_POSITIVE_RANK,),
    "QuantizedAdapter": (_POSITIVE_RANK,),
    "EnvVar": (
        _exactly_one("value", "valueFrom"),
        *(
            _rule(f"!self.name.startsWith('{start}')", "an attempt's Ray has a token of its own: leave this variable out")
            for start in RAY_TOKEN_VARIABLES
        ),
    ),
    "ModelRef": (
        _exactly_one("name", "from"),
        _rule("!has(self.path) || has(self.from)", "path goes with from; put it into name instead"),
        _rule("!has(self.name) || !(self.name.startsWith('.') || self.name.startsWith('~'))", f"name: a path beside the file: {ADVICE}"),
    ),
    "ProcessTask": (
        _rule(
            "!has(self.workingDir) || self.workingDir.contains('://') || self.workingDir.startsWith('/')",
            f"workingDir: a path beside the file: {ADVICE}",
        ),
    ),
    "Source": _PLACE,
    "ScoreData": _PLACE,
    "MixPart": _PLACE,
    "TrainData": (
        _WITH_MIX,
        *_PLACE[1:],
        _rule("!(has(self.validation) && self.validationFraction > 0.0)", "give validation or validationFraction, not both"),
    ),
    "TrainTask": (
        _rule("!(has(self.epochs) && has(self.steps))", "give epochs or steps, not both"),
        _rule("!(self.objective == 'dpo' && self.data.pack)", "a dpo sample is a pair of answers: it cannot be packed"),
        _rule("self.objective == 'dpo' || self.data.format != 'preference'", "preference data need objective: dpo"),
        _rule("has(self.model) || has(self.program)", "model: required, unless a program makes its own"),
        _rule("!has(self.programDir) || has(self.program)", "programDir goes with program"),
        _rule(
            "!has(self.programDir) || self.programDir.contains('://') || self.programDir.startsWith('/')",
            f"programDir: a path beside the file: {ADVICE}",
        ),
        _rule(
            "!has(self.model) || self.model.init != 'scratch' || has(self.method.full)",
            "an adapter needs pretrained weights; use method: {full: {}}",
        ),
    ),
    "RankFeatures": (
        _rule(
            "(has(self.dense) && size(self.dense) > 0) || (has(self.sparse) && size(self.sparse) > 0)",
            "name at least one dense or sparse column",
        ),
    ),
    "RankTask": (
        _rule(
            "!has(self.slices) || size(self.slices) == 0 || has(self.validation) || self.validationFraction > 0.0",
            "slices are of held-out rows: give validation or validationFraction",
        ),
        _rule("!(has(self.epochs) && has(self.steps))", "give epochs or steps, not both"),
        _rule("!(has(self.validation) && self.validationFraction > 0.0)", "give validation or validationFraction, not both"),
        _rule(
            "!has(self.service) || !has(self.streaming) || self.streaming",
            "service makes rows of a streamed table: leave streaming: false out",
        ),
        _rule(
            "!(has(self.service) || (has(self.streaming) && self.streaming)) || self.validationFraction == 0.0",
            "validationFraction needs all rows before the first step, and the table is streamed: give validation",
        ),
        _rule(
            "self.negativeRate == 1.0 || !has(self.moreLabels) || size(self.moreLabels) == 0",
            "with moreLabels, probabilities of rows that were drawn by one label cannot be corrected: give negativeRate 1",
        ),
    ),
    "ScoreTask": (
        _rule(
            f"{needs_no_reference(METRICS)} || has(self.data.reference)",
            "metrics need data.reference: the column with the expected answer",
        ),
    ),
}
