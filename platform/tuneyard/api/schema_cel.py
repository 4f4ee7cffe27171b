"""What a CRD's plain schema cannot say, in CEL: the API server refuses these before an operator sees the object.

Each rule repeats a validator of the model named here, for those who apply with kubectl; `api` remains the judge. What stands
behind a union (a strategy is `auto` or a group) is invisible to CEL, and is refused at admission by `check_rules` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CelRule = Mapping[str, str]


def _rule(rule: str, message: str) -> CelRule:
    return {"rule": rule, "message": message}


def _exactly_one(*fields: str) -> CelRule:
    given = ", ".join(f"has(self.{field})" for field in fields)
    return _rule(f"[{given}].exists_one(given, given)", f"give exactly one of {', '.join(fields)}")


_PLACE = (_exactly_one("source", "from"), _rule("!has(self.path) || has(self.from)", "path goes with from; put it into source instead"))
_POSITIVE_RANK = _rule("self.rank >= 1", "the rank of an adapter is at least 1")

CEL_RULES: Mapping[str, Sequence[CelRule]] = {
    "Task": (_exactly_one("train", "score", "tune", "rank", "process"),),
    "Method": (_exactly_one("full", "lora", "qlora", "dora"),),
    "Adapter": (_POSITIVE_RANK,),
    "QuantizedAdapter": (_POSITIVE_RANK,),
    "EnvVar": (_exactly_one("value", "valueFrom"),),
    "ModelRef": (_exactly_one("name", "from"), _rule("!has(self.path) || has(self.from)", "path goes with from; put it into name instead")),
    "Source": _PLACE,
    "ScoreData": _PLACE,
    "TrainData": (
        *_PLACE,
        _rule("!(has(self.validation) && self.validationFraction > 0.0)", "give validation or validationFraction, not both"),
    ),
    "TrainTask": (
        _rule("!(has(self.epochs) && has(self.steps))", "give epochs or steps, not both"),
        _rule("!(self.objective == 'dpo' && self.data.pack)", "a dpo sample is a pair of answers: it cannot be packed"),
        _rule("self.objective == 'dpo' || self.data.format != 'preference'", "preference data need objective: dpo"),
        _rule("self.model.init != 'scratch' || has(self.method.full)", "an adapter needs pretrained weights; use method: {full: {}}"),
    ),
    "ScoreTask": (
        _rule("size(self.metrics) == 0 || has(self.data.reference)", "metrics need data.reference: the column with the expected answer"),
    ),
}
