"""News about runs: for events, and for a webhook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tuneyard.api.schedule_parts import Occasion
from tuneyard.api.schedule_status import ScheduledRun

_REASONS: Mapping[str, str] = {
    "regressed": "Regressed",
    "recovered": "Recovered",
    "accepted": "Accepted",
    "failed": "RunFailed",
    "missed": "RunMissed",
}
_MARKS: Mapping[str, str] = {
    "regressed": ":small_red_triangle_down:",
    "recovered": ":white_check_mark:",
    "failed": ":x:",
    "missed": ":hourglass:",
}
_SLACK_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_LONGEST_TEXT = 2_000
SENT = "sent"
"""State of a message to a webhook that was sent."""
PAUSES_S = (2.0, 15.0, 60.0)
"""Pauses between tries of a message, on a hub and on one machine."""
LIMIT_S = 10.0
"""Longest wait for a webhook's answer."""


@dataclass(frozen=True)
class News:
    """One piece of news about a run. `reason`: one word, as in Kubernetes' events. A webhook is told of each occasion but `accepted`."""

    occasion: Occasion | Literal["accepted"]
    run: str
    message: str

    @property
    def reason(self) -> str:
        return _REASONS[self.occasion]

    @property
    def is_warning(self) -> bool:
        return self.occasion not in ("recovered", "accepted")


def notice_body(form: Literal["slack", "json"], namespace: str, schedule: str, run: ScheduledRun) -> dict[str, Any]:
    """The body of the message to a webhook. `slack`: for incoming webhooks, in which texts of people cannot mention or link."""
    occasion = occasion_of(run)
    if form == "slack":
        text = f"Schedule {namespace}/{schedule}: run {run.name} {occasion or run.verdict}: {run.message}"[:_LONGEST_TEXT]
        for sign, escape in _SLACK_ESCAPES:
            text = text.replace(sign, escape)
        return {"text": f"{_MARKS.get(occasion or '', '')} {text}".strip()}
    return {
        "schedule": schedule,
        "namespace": namespace,
        "occasion": occasion or run.verdict,
        **run.model_dump(mode="json", by_alias=True, include={*_FACTS}),
    }


_FACTS = ("name", "due", "kind", "phase", "verdict", "message", "compared_with", "started_at", "finished_at", "figures")


def occasion_of(run: ScheduledRun) -> Occasion | None:
    """The occasion of a message about a run, by its verdict; None: there is none."""
    match run.verdict:
        case "regressed" | "failed" | "missed":
            return run.verdict
        case "good":
            return "recovered"
    return None
