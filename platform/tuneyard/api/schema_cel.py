"""CEL rules of the CRDs, for constraints that a structural schema cannot express. The API server checks them before an operator sees the
object.

Each rule repeats a validator of the model named here, for `kubectl apply`. `api` remains the judge, with the job's template filled in. An
unset field may get its value from the template or from the models' default, so a rule looks only at given fields. The content of a union (a
strategy is `auto` or a group) is invisible to CEL; `check_rules` checks it at admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuneyard.api.base import RAY_TOKEN_VARIABLES
from tuneyard.api.jobspec import ONE_CLUSTER
from tuneyard.api.local_files import ADVICE
from tuneyard.api.tasks import LOGS, TASK_KINDS

CelRule = Mapping[str, str]


def _rule(rule: str, message: str) -> CelRule:
    return {"rule": rule, "message": message}


def _exactly_one(*fields: str) -> CelRule:
    given = ", ".join(f"has(self.{field})" for field in fields)
    return _rule(f"[{given}].exists_one(given, given)", f"give exactly one of {', '.join(fields)}")


def _at_most_one(*given: str) -> CelRule:
    """At most one of several exclusive fields: a template may give the one that a job leaves out."""
    pairs = " && ".join(f"!({one} && {other})" for index, one in enumerate(given) for other in given[index + 1 :])
    names = [each.partition("self.")[2].partition(")")[0] for each in given]
    return _rule(pairs, f"give exactly one of {', '.join(names)}")


def _without_template(task: str, fields: str, *needs: str) -> CelRule:
    """Required fields of a kind of task in jobs without a template. `fields`: for the message; `needs`: CEL conditions on a task `t`."""
    conditions = " && ".join(f"({each})" for each in needs)
    rule = f"has(self.template) || self.tasks.all(t, !has(t.{task}) || ({conditions}))"
    return _rule(rule, f"tasks: {task} needs {fields}, unless a template gives them")


def _none_beside_harness(has_harness: str, fields: Sequence[str]) -> CelRule:
    """Fields that tasks of lm-evaluation-harness leave no meaning."""
    rule = f"!({has_harness}) || !({' || '.join(f'has(self.{field})' for field in fields)})"
    return _rule(rule, f"tasks of lm-evaluation-harness bring their own: leave {', '.join(fields)} out")


_OF_OTHER_SCORES = ("metrics", "ownMetrics", "judge", "choices")
_OF_OTHER_ROWS = ("prompt", "reference", "keep", "columns", "sample", "limit", "chat")
_PLACE = (
    _at_most_one("has(self.source)", "has(self.from)"),
    _rule("!has(self.path) || has(self.from)", "path needs from; put it into source instead"),
    _rule("!has(self.source) || self.source.contains('://') || self.source.startsWith('/')", f"source: a path beside the file: {ADVICE}"),
)


_WITH_MIX = _at_most_one("has(self.source)", "has(self.from)", "(has(self.mix) && size(self.mix) > 0)")
_NONE_HELD_OUT = "!has(self.validationFraction) || self.validationFraction == 0.0"
_ONE_VALIDATION = _rule(
    "!(has(self.validation) && has(self.validationFraction) && self.validationFraction > 0.0)",
    "give validation or validationFraction, not both",
)


_POSITIVE_RANK = _rule("!has(self.rank) || self.rank >= 1", "the rank of an adapter is at least 1")

CEL_RULES: Mapping[str, Sequence[CelRule]] = {
    "Job": (
        _without_template(
            "train",
            "a model (name or from) or a program, and data (source, from or mix)",
            "has(t.train.model) || has(t.train.program)",
            "!has(t.train.model) || has(t.train.model.name) || has(t.train.model.from)",
            "has(t.train.data) && (has(t.train.data.source) || has(t.train.data.from) || has(t.train.data.mix))",
        ),
        _without_template(
            "score",
            "a model (name or from) or an endpoint, and data (source, from or lmEval)",
            "(has(t.score.engine) && has(t.score.engine.endpoint)) || "
            "(has(t.score.model) && (has(t.score.model.name) || has(t.score.model.from)))",
            "has(t.score.data) && (has(t.score.data.source) || has(t.score.data.from) || has(t.score.data.lmEval))",
        ),
        _without_template(
            "rank",
            "a table (source or from), features and a model",
            "has(t.rank.table) && (has(t.rank.table.source) || has(t.rank.table.from))",
            "has(t.rank.features)",
            "has(t.rank.model)",
        ),
        _rule(
            "self.tasks.all(t, !has(t.tune) || "
            "self.tasks.exists(other, other.name == t.tune.task && (has(other.train) || has(other.rank))))",
            "tune.task: only a train or rank task can be tuned; name one",
        ),
    ),
    "Placement": (_rule("!has(self.spread) || self.spread == 'never'", f"spread: {ONE_CLUSTER}"),),
    "Task": (
        _exactly_one(*TASK_KINDS),
        _rule(f"self.name != '{LOGS}'", f"name: {LOGS} is the folder of all tasks' logs in the output"),
    ),
    "Method": (_exactly_one("full", "lora", "qlora", "dora"),),
    "Adapter": (_POSITIVE_RANK,),
    "QuantizedAdapter": (_POSITIVE_RANK,),
    "EnvVar": (
        _exactly_one("value", "valueFrom"),
        *(
            _rule(f"!self.name.startsWith('{start}')", "an attempt's Ray has its own token: leave this variable out")
            for start in RAY_TOKEN_VARIABLES
        ),
    ),
    "ModelRef": (
        _at_most_one("has(self.name)", "has(self.from)"),
        _rule("!has(self.path) || has(self.from)", "path needs from; put it into name instead"),
        _rule("!has(self.name) || !(self.name.startsWith('.') || self.name.startsWith('~'))", f"name: a path beside the file: {ADVICE}"),
    ),
    "Embedding": (
        _at_most_one("has(self.model)", "has(self.endpoint)"),
        _rule("!has(self.endpoint) || !has(self.revision)", "the endpoint has its own model: leave revision out"),
        _rule(
            "!has(self.model) || !(self.model.startsWith('.') || self.model.startsWith('~'))", f"model: a path beside the file: {ADVICE}"
        ),
    ),
    "Choices": (_exactly_one("texts", "column"),),
    "ServedModel": (
        _rule("has(self.name) != has(self.from)", "give exactly one of name and from"),
        _rule("!has(self.name) || !(self.name.startsWith('.') || self.name.startsWith('~'))", f"name: a path beside the file: {ADVICE}"),
    ),
    "ProcessTask": (
        _rule(
            "!has(self.workingDir) || self.workingDir.contains('://') || self.workingDir.startsWith('/')",
            f"workingDir: a path beside the file: {ADVICE}",
        ),
    ),
    "Source": _PLACE,
    "ScoreData": (
        _at_most_one("has(self.source)", "has(self.from)", "has(self.lmEval)"),
        *_PLACE[1:],
        _none_beside_harness("has(self.lmEval)", _OF_OTHER_ROWS),
    ),
    "LmEval": (
        _rule(
            "!has(self.folder) || self.folder.contains('://') || self.folder.startsWith('/')",
            f"folder: a path beside the file: {ADVICE}",
        ),
    ),
    "MixPart": _PLACE,
    "TrainData": (
        _WITH_MIX,
        *_PLACE[1:],
        _ONE_VALIDATION,
    ),
    "TrainTask": (
        _rule("!(has(self.epochs) && has(self.steps))", "give epochs or steps, not both"),
        _rule(
            "!has(self.objective) || self.objective == 'dpo' || "
            "!has(self.data) || !has(self.data.format) || self.data.format != 'preference'",
            "preference data need objective: dpo",
        ),
        _rule(
            "!has(self.programDir) || self.programDir.contains('://') || self.programDir.startsWith('/')",
            f"programDir: a path beside the file: {ADVICE}",
        ),
        _rule(
            "!(has(self.model) && has(self.model.init) && self.model.init == 'scratch' && has(self.method)) || has(self.method.full)",
            "an adapter needs pretrained weights; use method: {full: {}}",
        ),
    ),
    "ScoreTask": (
        _none_beside_harness("has(self.data) && has(self.data.lmEval)", _OF_OTHER_SCORES),
        _rule(
            "!(has(self.data) && has(self.data.lmEval) && has(self.engine) && has(self.engine.endpoint))",
            "endpoints give no likelihoods of given texts, which tasks of lm-evaluation-harness ask for: leave endpoint out",
        ),
        _rule(
            "!has(self.metricsDir) || self.metricsDir.contains('://') || self.metricsDir.startsWith('/')",
            f"metricsDir: a path beside the file: {ADVICE}",
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
            "!has(self.slices) || size(self.slices) == 0 || has(self.validation) || "
            "!has(self.validationFraction) || self.validationFraction > 0.0",
            "slices are of held-out rows: give validation or validationFraction",
        ),
        _rule("!(has(self.epochs) && has(self.steps))", "give epochs or steps, not both"),
        _ONE_VALIDATION,
        _rule(
            "!has(self.service) || !has(self.streaming) || self.streaming",
            "service makes rows of a streamed table: leave streaming: false out",
        ),
        _rule(
            "!(has(self.service) || (has(self.streaming) && self.streaming)) || " + _NONE_HELD_OUT,
            "validationFraction needs all rows before the first step, and the table is streamed: give validation",
        ),
        _rule(
            "!has(self.negativeRate) || self.negativeRate == 1.0 || !has(self.moreLabels) || size(self.moreLabels) == 0",
            "with moreLabels, probabilities of rows that were drawn by one label cannot be corrected: give negativeRate 1",
        ),
    ),
}
