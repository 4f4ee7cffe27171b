"""Rules about `train.program`: settings of language models that a program never reads, and settings that a program decides itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic.alias_generators import to_camel

from tuneyard.api.rules_case import Case, Rule
from tuneyard.api.train import Preference

_TOKEN_FIELDS = (
    "format",
    "pack",
    "max_length",
    "overlong",
    "loss_on",
    "chat",
    "chat_template",
    "columns",
    "roles",
    "template",
    "show_sample",
)
"""Fields of `data` that turn rows into tokens. A program gets the rows themselves."""


def _without(field: str) -> Callable[[Case], list[dict[str, Any]]]:
    return lambda _case: [{field: None}]


def _token_settings(case: Case) -> list[str]:
    """The fields among these that the task sets."""
    data = case.train.data
    default = {name: type(data).model_fields[name].get_default(call_default_factory=True) for name in _TOKEN_FIELDS}
    return [name for name in _TOKEN_FIELDS if getattr(data, name) != default[name]]


def _other_adapter(case: Case) -> bool:
    method, adapter = case.train.method, case.train.method.adapter
    if case.train.program is None or adapter is None:
        return False
    plain = method.lora is not None and not adapter.save_modules and not adapter.merge
    return not plain or case.strategy.tensor_parallel > 1


def _has_idle_workers(case: Case) -> bool:
    data = case.train.data
    return isinstance(data.workers, int) and not data.asks_for_stream


def _limits(case: Case) -> list[str]:
    """The fields that limit rows."""
    data = case.train.data
    found = {"train.data.limit": data.limit, "train.data.validation.limit": data.validation.limit if data.validation is not None else None}
    return [field for field, limit in found.items() if limit is not None]


def _program(**settings: Any) -> dict[str, Any]:
    """An example: a train task with a program and these settings."""
    return {"train.program": "captions:Captions", **{f"train.{name.replace('__', '.')}": value for name, value in settings.items()}}


PROGRAM_RULES = (
    Rule(
        id="program-objective",
        kind="train",
        refused="`objective` beside a program",
        why="the program's own loss is the objective; sft, clm and dpo are those of language models",
        field="train.objective",
        breaks=lambda c: c.train.program is not None and "objective" in c.train.model_fields_set,
        nearest=_without("train.objective"),
        example=_program(objective="clm"),
    ),
    Rule(
        id="program-method",
        kind="train",
        refused="qlora, dora, `saveModules`, `merge`, and an adapter under tensor parallelism, beside a program",
        why="a program's model is of any kind: lora goes onto its linears, and is added to their weights at the end",
        field="train.method",
        breaks=_other_adapter,
        nearest=lambda _: ({"train.method": {"full": {}}}, {"train.method": {"lora": {"rank": 8}}, "train.strategy.tensorParallel": None}),
        example=_program(method={"dora": {"rank": 8}}),
    ),
    Rule(
        id="program-open-batch",
        kind="train",
        refused="`batch.global: auto` beside a program",
        why="the planner finds the largest micro-batch that fits, and does not know the memory of a program",
        field="train.batch.global",
        breaks=lambda c: c.train.program is not None and c.train.batch.is_open,
        nearest=lambda _: ({"train.batch.global": 32},),
        example=_program(batch={"global": "auto"}),
    ),
    Rule(
        id="program-tokens",
        kind="train",
        refused="settings of tokens beside a program",
        why=f"a program gets rows as they are: {', '.join(_TOKEN_FIELDS[:4])} and similar fields turn rows into tokens",
        field="train.data",
        breaks=lambda c: c.train.program is not None and bool(_token_settings(c)),
        nearest=lambda c: ({f"train.data.{to_camel(name)}": None for name in _token_settings(c)},),
        example=_program(data__pack=True),
    ),
    Rule(
        id="program-mixture",
        kind="train",
        refused="a mixture of data sets beside a program",
        why="the weights of a mixture's parts are shares of token rows",
        field="train.data.mix",
        breaks=lambda c: c.train.program is not None and bool(c.train.data.mix),
        nearest=lambda _: ({"train.data": {"source": "data.jsonl"}},),
        example=_program(data={"mix": [{"source": "a.jsonl"}, {"source": "b.jsonl"}]}),
    ),
    Rule(
        id="program-workers",
        kind="train",
        refused="`workers` of data beside a program, without `streaming`",
        why="data workers make rows of streams, and rows of a program are streamed where `streaming` asks for it",
        field="train.data.workers",
        breaks=lambda c: c.train.program is not None and _has_idle_workers(c),
        nearest=lambda _: ({"train.data.streaming": True}, {"train.data.workers": None}),
        example=_program(data__workers=2),
    ),
    Rule(
        id="program-images",
        kind="train",
        refused="`images` beside `streaming: false`",
        why="images are decoded while the task trains",
        field="train.data.images",
        breaks=lambda c: c.train.data.images is not None and c.train.data.streaming is False,
        nearest=lambda _: ({"train.data.streaming": None}, {"train.data.images": None}),
        example=_program(data__images={"shortSide": 64}, data__streaming=False),
    ),
    Rule(
        id="program-limit",
        kind="train",
        refused="`limit`, of the data or of `validation`, beside streamed rows of a program",
        why="`limit` needs all rows before it, and `streaming`, `service` and `images` read rows in another order",
        field="train.data",
        breaks=lambda c: c.train.program is not None and c.train.data.asks_for_stream and bool(_limits(c)),
        nearest=lambda c: (
            dict.fromkeys(_limits(c)),
            {"train.data.streaming": None, "train.data.service": None, "train.data.images": None},
        ),
        example=_program(data__images={"shortSide": 64}, data__limit=100),
    ),
    Rule(
        id="images-alone",
        kind="train",
        refused="`images` without a program",
        why="language models are trained on texts; a program gets the pixels in its rows",
        field="train.data.images",
        breaks=lambda c: c.train.program is None and c.train.data.images is not None,
        nearest=_without("train.data.images"),
        example={"train.data.images": {"shortSide": 64}},
    ),
    Rule(
        id="program-language-settings",
        kind="train",
        refused="`preference` or `routerLoss` beside a program",
        why="only objectives of language models read them",
        field="train.program",
        breaks=lambda c: c.train.program is not None and (c.train.preference != Preference() or c.train.router_loss is not None),
        nearest=lambda _: ({"train.preference": None, "train.routerLoss": None},),
        example=_program(routerLoss=0.1),
    ),
    Rule(
        id="program-model-settings",
        kind="train",
        refused="`init` or `attention` beside a program",
        why="the program's own code makes its model: it has no weights to load, and chooses its attention itself",
        field="train.model",
        breaks=lambda c: (
            c.train.program is not None
            and c.train.model.is_given
            and (c.train.model.init != "pretrained" or c.train.model.attention != "auto")
        ),
        nearest=lambda _: ({"train.model.init": None, "train.model.attention": None},),
        example=_program(model={"name": "model", "init": "scratch"}),
    ),
    Rule(
        id="program-recompute",
        kind="train",
        refused="`recompute`, `liger` or `compile` beside a program",
        why="they change the code of known models; your own model can call torch.utils.checkpoint itself",
        field="train.strategy",
        breaks=lambda c: (
            c.train.program is not None and (c.strategy.recompute is True or c.strategy.liger is True or c.strategy.compile == "layers")
        ),
        nearest=lambda _: ({"train.strategy.recompute": None, "train.strategy.liger": None, "train.strategy.compile": None},),
        example=_program(strategy__recompute=True),
    ),
    Rule(
        id="sharding-rules-alone",
        kind="train",
        refused="`shardingRules` without a program, or without `tensorParallel`",
        why="they say how tensor parallelism cuts a program's model; language models have an automatic plan, which the planner counts on",
        field="train.strategy.shardingRules",
        breaks=lambda c: (
            bool(c.strategy.sharding_rules) and (c.task.train is None or c.train.program is None or c.strategy.tensor_parallel == 1)
        ),
        nearest=_without("train.strategy.shardingRules"),
        example={"train.strategy.shardingRules": [{"match": "fc1", "cut": "columns"}]},
        of_rankers=True,
    ),
)
