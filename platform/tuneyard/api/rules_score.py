"""Rules about score tasks."""

from __future__ import annotations

from tuneyard.api.rules_case import CPU, T4, Rule, always
from tuneyard.metrics import METRICS, needing

CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Widths of an attention head for which vLLM has kernels on CPUs (vllm/v1/attention/backends/cpu_attn.py)."""

SCORE_RULES = (
    Rule(
        id="score-workers",
        kind="score",
        refused="`workers` on a score task",
        why="workers are the ranks of a train task; a score task counts its engines in instances",
        field="resources.workers",
        breaks=lambda c: c.resources.workers != "auto",
        nearest=lambda c: (
            {"resources.workers": None, "resources.instances": c.resources.workers if isinstance(c.resources.workers, int) else 1},
        ),
        example={"resources.workers": 4},
    ),
    Rule(
        id="metrics-without-reference",
        kind="score",
        refused="metrics without a reference",
        why="these metrics compare with an expected answer, or are its likelihood",
        field="score.metrics",
        breaks=lambda c: c.score.data.reference is None and bool(needing("reference", [METRICS[name] for name in c.score.metrics])),
        nearest=always({"score.data.reference": "answer"}, {"score.metrics": None}),
        example={"score.metrics": ["exact_match"]},
    ),
    Rule(
        id="endpoint-likelihood",
        kind="score",
        refused="metrics of likelihoods at an endpoint",
        why="they need the likelihood of each token of a given text, and endpoints give likelihoods of their own answers alone",
        field="score.metrics",
        breaks=lambda c: (
            c.task.endpoint is not None
            and (c.score.choices is not None or bool(needing("likelihood", [METRICS[name] for name in c.score.metrics])))
        ),
        nearest=always({"score.metrics": None}, {"score.metrics": None, "score.choices": None}),
        example={
            "score.model": None,
            "score.engine.endpoint": {"url": "https://api.example.com/v1", "model": "small"},
            "score.data.reference": "answer",
            "score.metrics": ["perplexity"],
        },
    ),
    Rule(
        id="greedy-sampling",
        kind="score",
        refused="topP or topK at temperature 0",
        why="temperature 0 always takes the likeliest token, so these settings have no effect",
        field="score.generation",
        breaks=lambda c: c.score.generation.temperature == 0 and (c.score.generation.top_p < 1 or c.score.generation.top_k > 0),
        nearest=always({"score.generation.temperature": 0.7}, {"score.generation.topP": None, "score.generation.topK": None}),
        example={"score.generation.topP": 0.9},
    ),
    Rule(
        id="score-scratch",
        kind="score",
        refused="`init: scratch` in a score task",
        why="it would score random weights",
        field="score.model.init",
        breaks=lambda c: c.score.model.init == "scratch",
        nearest=always({"score.model.init": None}),
        example={"score.model.init": "scratch"},
    ),
    Rule(
        id="score-attention",
        kind="score",
        refused="`attention` in a score task",
        why="vLLM brings its own attention and chooses it by device",
        field="score.model.attention",
        breaks=lambda c: c.score.model.attention != "auto",
        nearest=always({"score.model.attention": None}),
        example={"score.model.attention": "eager"},
    ),
    Rule(
        id="score-bf16",
        kind="score",
        refused="a bf16 engine on a GPU without it",
        why="GPUs before Ampere (T4, V100) have no bf16 arithmetic, and vLLM refuses it there",
        field="score.engine.precision",
        breaks=lambda c: c.score.engine.precision == "bf16" and c.device is not None and not c.device.bf16,
        nearest=always({"score.engine.precision": "fp16"}, {"score.engine.precision": "auto"}),
        example={"score.engine.precision": "bf16"},
        example_device=T4,
    ),
    Rule(
        id="score-head-size",
        kind="score",
        refused="a model whose head size the engine does not support",
        why=f"vLLM's attention on CPUs supports head sizes {', '.join(map(str, CPU_HEAD_SIZES))}",
        field="score.model",
        breaks=lambda c: c.device is not None and c.device.is_cpu and c.head_size is not None and c.head_size not in CPU_HEAD_SIZES,
        nearest=always(),
        remedy="another model, or a GPU",
        example={"score.model.name": "model"},
        example_device=CPU,
        example_head_size=16,
    ),
)
