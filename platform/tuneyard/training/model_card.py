"""The README.md beside a trained model: its origin, settings and results.

It holds no secrets and no local paths, and the Hugging Face hub accepts its front matter: the hub refuses a `base_model` or a data set that
is no id of a repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api import TrainTask
from tuneyard.data import DataReport
from tuneyard.planning import Plan
from tuneyard.training.published import data_set_id, is_hub_id, known_to_others
from tuneyard.training.request import TrainRequest

_LOSS = {"all": "all tokens", "assistant": "the turns of the assistant", "completion": "the completion"}
_LOSS_BY_FORMAT = {
    "text": _LOSS["all"],
    "chat": _LOSS["assistant"],
    "prompt-completion": _LOSS["completion"],
    "preference": "both answers of a pair",
}
"""What `data.lossOn: auto` stands for."""
_OF_ADAPTER = {
    "library_name: peft": "library_name: transformers",
    "base_model_relation: adapter": "base_model_relation: finetune",
}
"""Lines of an adapter's front matter, and those of the merged model."""


def model_card(request: TrainRequest, figures: Mapping[str, Any], report: DataReport) -> str:
    """Markdown with the front matter for model hubs. `figures`: name -> value, shown in a table. `report`: what the data are."""
    task, base = request.task, known_to_others(request.model_uri)
    return "\n".join(
        [
            *_front_matter(request),
            "",
            f"# {request.job}: {request.name}",
            "",
            f"Trained by Tuneyard: {task.objective}, {task.method.name}, from `{base}`.{_base_of_qlora(task)}",
            "",
            "## Data",
            "",
            _data(task, report),
            "",
            "## Training",
            "",
            _table({**_settings(task), **_layout(request.plan)}),
            "",
            "## Results",
            "",
            _table(figures),
            "",
        ]
    )


def card_of_merged(card: str) -> str:
    """The card of the merged model, of that of its adapter."""
    return "\n".join(_OF_ADAPTER.get(line, line) for line in card.split("\n"))


def program_card(request: TrainRequest, figures: Mapping[str, Any]) -> str:
    """The card of a program's model, like `model_card`."""
    task = request.task
    origin = f", from `{known_to_others(request.model_uri)}`" if request.model_uri else ""
    about = f"Trained by Tuneyard: program `{task.program}`{origin}. `program.json` says how the weights are loaded."
    base = [f"base_model: {request.model_uri}"] if is_hub_id(request.model_uri) else []
    layout = {name: value for name, value in _layout(request.plan).items() if name not in ("attention", "recompute")}
    return "\n".join(
        [
            *["---", "library_name: tuneyard", *base, "tags: [tuneyard]", "---"],
            *["", f"# {request.job}: {request.name}", "", about],
            *["", "## Data", "", f"`{known_to_others(task.data.source or '')}`, rows as they are."],
            *["", "## Training", "", _table({**_settings(task), **layout})],
            *["", "## Results", "", _table(figures), ""],
        ]
    )


def ranker_card(request: TrainRequest, figures: Mapping[str, Any]) -> str:
    """The card of a ranker, like `model_card`."""
    rank = request.rank
    assert rank is not None
    layout = {name: value for name, value in _layout(request.plan).items() if name not in ("attention", "recompute")}
    layers = "; ".join(" + ".join(modules) for modules in rank.model.layers)
    model = {
        "features": f"{len(rank.features.dense)} dense, {len(rank.features.sparse)} sparse",
        "labels": ", ".join(rank.labels),
        **({"transforms": ", ".join(step.op for step in rank.transforms)} if rank.transforms else {}),
        **({"rows with label 0": f"a share of {rank.negative_rate:g}; predictions are for all rows"} if rank.negative_rate < 1 else {}),
        "layers": f"{layers}, joined by {rank.model.ensemble}, {rank.model.outputs} outputs of each module, width {rank.model.width}",
        "table rows": f"{rank.tables.rows}, row-wise Adagrad, learning rate {rank.tables.learning_rate:g}",
    }
    return "\n".join(
        [
            *["---", "library_name: tuneyard", "tags: [tuneyard, ranking]", "---"],
            *["", f"# {request.job}: {request.name}", ""],
            "Trained by Tuneyard: a DHEN ranker (Zhang et al. 2022). `tuneyard.ranking.load(folder)` loads it.",
            *["", "## Data", "", f"`{known_to_others(rank.table.source or '')}`."],
            *["", "## Training", "", _table({**model, **_settings(request.task), **layout})],
            *["", "## Results", "", _table(figures), ""],
        ]
    )


def _base_of_qlora(task: TrainTask) -> str:
    qlora = task.method.qlora
    if qlora is None:
        return ""
    twice = ", with double quantization" if qlora.double_quantization else ""
    return f" The adapter belongs to this base in 4 bits ({qlora.quantization}{twice}): load the base so, or use the merged model."


def _front_matter(request: TrainRequest) -> list[str]:
    task, is_adapter = request.task, request.task.method.adapter is not None
    sources = [part.source for part in task.data.mix] or [task.data.source]
    sets = list(dict.fromkeys(name for name in map(data_set_id, sources) if name is not None))
    is_known = is_hub_id(request.model_uri) and task.model.init == "pretrained"
    base = [f"base_model: {request.model_uri}", f"base_model_relation: {'adapter' if is_adapter else 'finetune'}"] if is_known else []
    return [
        *("---", f"library_name: {'peft' if is_adapter else 'transformers'}", *base),
        *([f"datasets: [{', '.join(sets)}]"] if sets else []),
        *("tags: [tuneyard]", "---"),
    ]


def _data(task: TrainTask, report: DataReport) -> str:
    packed = f", packed into rows of {task.data.max_length} tokens" if task.data.pack else f", up to {task.data.max_length} tokens each"
    if task.data.mix:
        formats = {part["format"] for part in report.parts}
        parts = ", ".join(f"`{known_to_others(part['source'])}` ({part['format']})" for part in report.parts)
        return f"a mixture of {parts}{packed}; loss on {' or '.join(sorted({_loss(task, each) for each in formats}))}."
    return f"`{known_to_others(task.data.source or '')}`, format {report.format}{packed}; loss on {_loss(task, report.format)}."


def _loss(task: TrainTask, form: str) -> str:
    """The tokens that carried loss, for samples of this format."""
    if task.data.loss_on != "auto":
        return _LOSS[task.data.loss_on]
    return _LOSS["all"] if task.objective == "clm" else _LOSS_BY_FORMAT.get(form, f"what {form} samples teach")


def _settings(task: TrainTask) -> dict[str, Any]:
    optimizer = task.optimizer
    settings = {
        "optimizer": optimizer.name + (", states in bf16" if optimizer.states == "bf16" else ""),
        "learning rate": optimizer.learning_rate,
        "schedule": f"{optimizer.schedule}, warm-up {optimizer.warmup:g}",
        "weight decay": optimizer.weight_decay,
        "gradient clipping": optimizer.max_grad_norm or "none",
        "seed": task.seed,
    }
    if task.router_loss is not None:
        settings["router loss"] = task.router_loss
    adapter = task.method.adapter
    if adapter is not None:
        settings["adapter"] = (
            f"rank {adapter.rank}, alpha {adapter.alpha or 2 * adapter.rank:g}, dropout {adapter.dropout:g}, {adapter.targets}"
        )
    return settings


def _layout(plan: Plan) -> dict[str, Any]:
    return {
        "workers": f"{plan.workers} x {plan.sku}",
        **_mesh(plan),
        **({"gradients": f"averaged in {plan.quantised_all_reduce}"} if plan.quantised_all_reduce != "none" else {}),
        "global batch": f"{plan.global_batch} rows ({plan.micro_batch} x {plan.grad_accum} x {plan.data_parallel})",
        "precision": plan.precision,
        "attention": plan.attention,
        "ZeRO": f"{plan.zero}{' inside hosts' if plan.shard_within == 'host' else ''}",
        "offload": f"optimizer {plan.offload_optimizer}, parameters {plan.offload_parameters}",
        "recompute": "yes" if plan.recompute else "no",
    }


def _mesh(plan: Plan) -> dict[str, Any]:
    axes = {"data": plan.data_parallel, "context": plan.context_parallel, "tensor": plan.tensor_parallel}
    shown = " x ".join(f"{size} {axis}" for axis, size in axes.items() if size > 1 or axis == "data")
    return {"mesh": f"{shown} parallel"} if plan.workers > plan.data_parallel else {}


def _table(rows: Mapping[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_shown(value)} |" for name, value in rows.items())])


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
