"""Prompts -> vLLM engines -> scored rows, committed part by part."""

from tuneyard.scoring.request import ScoreRequest, ScoreResult

__all__ = ["ScoreRequest", "ScoreResult"]
