"""Figures of lm-evaluation-harness by their names: `arc_easy/acc`, and `gsm8k/exact_match/strict-match` with the name of a filter."""

from __future__ import annotations

from tuneyard.metrics.metric import Figure

_LOWER = ("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "brier_score", "ter", "wer", "cer")
_HIGHER = (
    *("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "acc_all", "exact_match", "em", "f1", "mcc", "likelihood"),
    *("bleu", "chrf", "chrf++", "rouge1", "rouge2", "rougeL", "rougeLsum", "mc1", "mc2"),
)
"""Metrics of the harness and of its commonest tasks. Another metric has no direction here."""


def figure_name(task: str, metric: str, of: str) -> str:
    """`of`: the name of the filter behind which the metric stands."""
    return f"{task}/{metric}" if of == "none" else f"{task}/{metric}/{of}"


def harness_figure(name: str) -> Figure | None:
    """The figure with this name. None: it is none of the harness, or nobody knows which of its values are better."""
    task, slash, rest = name.partition("/")
    metric = rest.partition("/")[0]
    if not slash or metric not in (*_LOWER, *_HIGHER):
        return None
    return Figure(
        name=name,
        title=name,
        description=f"{metric} of the task {task} of lm-evaluation-harness",
        higher_is_better=metric in _HIGHER,
        value=lambda _: float("nan"),
    )
