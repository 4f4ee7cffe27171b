"""The kinds of trackers, by their field in `spec.tracking`. Nothing else names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuneyard.api import Fields, Tracking
from tuneyard.tracking.trackers import comet_tracker, mlflow_tracker, tensorboard_tracker, wandb_tracker
from tuneyard.tracking.trackers.tracker import TrackerKind

TRACKERS: Mapping[str, TrackerKind] = {
    "comet": comet_tracker.KIND,
    "wandb": wandb_tracker.KIND,
    "mlflow": mlflow_tracker.KIND,
    "tensorboard": tensorboard_tracker.KIND,
}


@dataclass(frozen=True)
class Asked:
    """A tracker that a job asks for. `name`: its field in `spec.tracking`; its files are in the folder of that name."""

    name: str
    kind: TrackerKind
    settings: Fields


def asked_for(tracking: Tracking) -> Iterator[Asked]:
    """The trackers of a job."""
    for name, kind in TRACKERS.items():
        settings = getattr(tracking, name)
        if settings is not None:
            yield Asked(name, kind, settings)
