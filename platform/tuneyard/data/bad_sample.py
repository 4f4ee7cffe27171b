"""A row that cannot be trained on, and a row that must not be."""

from __future__ import annotations

TEXT_ALONE = "models are tuned on text alone: images, sound and video would need the model's processor and its towers"


class BadSample(ValueError):
    """A row that cannot be trained on. The message is the reason, for people; `advice` is the remedy where it is not to repair the row."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.advice = advice


class LeftOut(BadSample):
    """A row labelled as an answer that must not be learned. It is neither a bad row nor a sample."""
