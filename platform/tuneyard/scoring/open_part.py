"""A part that is in the engine: its rows, what was asked about each, and the answers so far."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from tuneyard.api import Adapter, ScoreTask
from tuneyard.catalog import ModelShape, forward_flops
from tuneyard.data import ScoreRow
from tuneyard.scoring.engine import Answer, Asked, Evaluate, Generate
from tuneyard.scoring.prompts import BadRow, PromptEncoder
from tuneyard.scoring.rows import ScoredRow
from tuneyard.scoring.text_metrics import exact_match, rouge_l


class OpenPart:
    """Filled by the thread that drives the engine, finished by the thread that waits for it."""

    def __init__(self, rows: Sequence[ScoreRow], task: ScoreTask) -> None:
        self._rows = rows
        self._task = task
        self.scored = [ScoredRow(row["index"], reference=row["reference"], error=row["error"]) for row in rows]
        self._waiting_for = [0] * len(rows)
        self._rows_left = 0
        self._complete: Future[None] = Future()

    def requests(self, prompts: PromptEncoder) -> list[Asked]:
        """What to ask the engine. A row that gives no request has an error, or nothing to ask about."""
        asked: list[Asked] = []
        for index, row in enumerate(self._rows):
            if self.scored[index].error is not None:
                continue
            try:
                of_row = self._requests_of(index, row, prompts)
            except BadRow as error:
                self.scored[index].error = str(error)
                continue
            self._waiting_for[index] = len(of_row)
            asked += of_row
        self._rows_left = sum(count > 0 for count in self._waiting_for)
        if not asked:
            self._complete.set_result(None)
        return asked

    def _requests_of(self, index: int, row: ScoreRow, prompts: PromptEncoder) -> list[Asked]:
        asked: list[Asked] = []
        scored, metrics, seed = self.scored[index], self._task.metrics, self._task.generation.seed
        generates = metrics != ["perplexity"]
        if generates:
            ids = prompts.prompt(row["prompt"])
            asked.append(Generate((self, index), ids, None if seed is None else (seed + row["index"]) % 2**31))
        if "perplexity" in metrics and row["reference"] is not None:
            tokens = prompts.likelihood(row["prompt"], row["reference"])
            scored.reference_tokens, scored.evaluated_tokens = sum(tokens.counted), len(tokens.ids)
            asked.append(Evaluate((self, index), tokens))
        if generates:
            scored.input_tokens = len(ids)
        return asked

    def take(self, index: int, answer: Answer) -> None:
        """An answer about the row at `index` of this part."""
        row = self.scored[index]
        if answer.error is not None:
            row.error = answer.error
        elif answer.nll is not None:
            row.nll = answer.nll
        else:
            row.output, row.finish_reason, row.output_tokens = answer.text, answer.finish_reason, answer.output_tokens
        row.latency_s = max(row.latency_s or 0.0, answer.latency_s)
        self._waiting_for[index] -= 1
        if self._waiting_for[index] == 0:
            self._rows_left -= 1
            if self._rows_left == 0:
                self._complete.set_result(None)

    def abandon(self, error: BaseException) -> None:
        """The engine broke: whoever waits hears of it."""
        if not self._complete.done():
            self._complete.set_exception(error)

    def finish(self) -> list[ScoredRow]:
        """Wait for the last answer; then the scored rows, in input order. Raises what the engine raised."""
        self._complete.result()
        for row in self.scored:
            if row.error is not None:
                row.output = row.nll = row.latency_s = row.finish_reason = None
                row.output_tokens = row.reference_tokens = 0
            elif row.output is not None and row.reference is not None:
                row.exact_match = exact_match(row.output, row.reference) if "exact_match" in self._task.metrics else None
                row.rouge_l = rouge_l(row.output, row.reference) if "rouge_l" in self._task.metrics else None
        return self.scored

    @property
    def rows_done(self) -> int:
        return len(self._rows) - self._rows_left

    @property
    def errors(self) -> int:
        return sum(row.error is not None for row in self.scored)

    @property
    def output_tokens(self) -> int:
        return sum(row.output_tokens for row in self.scored)

    def flops(self, shape: ModelShape, adapter: Adapter | None) -> float:
        """Model FLOPs of what was asked: prefill and decode of outputs, one pass over prompts and references for likelihoods."""
        generated = [(row.input_tokens, row.output_tokens) for row in self.scored if row.output_tokens]
        evaluated = [row.evaluated_tokens for row in self.scored if row.evaluated_tokens]
        return forward_flops(
            shape,
            prompt_lengths=[prompt for prompt, _ in generated],
            output_lengths=[output for _, output in generated],
            adapter=adapter,
        ) + forward_flops(shape, prompt_lengths=evaluated, output_lengths=[0] * len(evaluated), adapter=adapter, prompt_logits=True)
