"""The first sample of a task as the model sees it, shown once."""

from __future__ import annotations

from typing import Any

from tuneyard import data
from tuneyard.data.shown import first_pieces
from tuneyard.tracking.events import Emit, SampleShown
from tuneyard.training.request import TrainRequest


def show_sample(request: TrainRequest, tokenizer: Any, prepared: data.Prepared, turn_end: int | None, emit: Emit) -> None:
    """Show the first sample once per task: not in later attempts, and not in trials of a search."""
    if not request.task.data.show_sample or request.attempt > 1 or request.is_trial:
        return
    shown = first_pieces(tokenizer, prepared.train, pairs=request.task.objective == "dpo")
    pieces = tuple((piece.text, piece.loss) for piece in shown)
    end = turn_end if prepared.chats else tokenizer.eos_token_id
    ends_with = "" if end is None else str(tokenizer.convert_ids_to_tokens(end))
    has_answers = prepared.report.format != "text"
    emit(SampleShown(task=request.name, pieces=pieces, ends_with=ends_with if has_answers else None))
