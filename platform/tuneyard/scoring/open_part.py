"""A part in the engine: its rows, the requests for each row, and the answers so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from tuneyard.api import Adapter, ScoreTask
from tuneyard.catalog import ModelShape, forward_flops
from tuneyard.data import ScoreRow
from tuneyard.data.meaning.paths import value_at
from tuneyard.metrics import METRICS
from tuneyard.scoring import choosing
from tuneyard.scoring.answers import Answers, compared
from tuneyard.scoring.exchange import Answer, Asked, Evaluate, Generate, Prompts
from tuneyard.scoring.harness.rows import asked_of
from tuneyard.scoring.judging import Judging, Request
from tuneyard.scoring.own_metrics import OwnMetrics
from tuneyard.scoring.prompts import BadRow
from tuneyard.scoring.rows import ScoredRow, asks_of
from tuneyard.scoring.similarity import Similarities
from tuneyard.scoring.structured import Fits
from tuneyard.scoring.thoughts import answer_apart, without_thoughts_of

_SEEDS_APART = 1_000_003
"""Between the seeds of two samples of a row."""


class OpenPart:
    """A part in progress. The thread that drives the engine fills it; the thread that waits for the part calls `finish`."""

    def __init__(
        self, rows: Sequence[ScoreRow], task: ScoreTask, own: OwnMetrics | None = None, similarities: Similarities | None = None
    ) -> None:
        self._rows = rows
        self._seen = [without_thoughts_of(row) for row in rows]
        self._task = task
        self._own = own or OwnMetrics([], None)
        self._similarities = similarities
        self.scored = [ScoredRow(row["index"], references=row["references"], error=row["error"]) for row in self._seen]
        self._opened: list[bool | None] = [False] * len(rows)
        """Of the prompt asked last, whether it ends in the middle of thoughts."""
        self._waiting_for = [0] * len(rows)
        self._rows_left = 0
        schema = task.generation.json_schema
        self._fits = Fits(schema) if isinstance(schema, dict) else None
        self._judging = Judging(task.judge) if task.judge is not None else None
        self._answers = Answers(task)
        self._choices: dict[int, choosing.Asked] = {}
        self._places: list[dict[int, Any]] = [{} for _ in rows]
        """Of each row, the samples or the log-likelihoods of choices so far, by their places."""
        self._complete: Future[None] = Future()

    def requests(self, prompts: Prompts) -> list[Asked]:
        """All requests of the part. A row without a request has an error, or needs no answer."""
        asked: list[Asked] = []
        for index, row in enumerate(self._rows):
            if self.scored[index].error is not None:
                continue
            try:
                of_row = self._requests_of(index, row, prompts)
            except BadRow as error:
                self.scored[index].error = str(error)
                continue
            finally:
                self.scored[index].spelled = prompts.take_spelled()
            self._waiting_for[index] = len(of_row)
            asked += of_row
        self._rows_left = sum(count > 0 for count in self._waiting_for)
        if not asked:
            self._complete.set_result(None)
        return asked

    def _requests_of(self, index: int, row: ScoreRow, prompts: Prompts) -> list[Asked]:
        if self._judging is not None:
            return self._question(self._judging, index, row, prompts)
        if self._task.choices is not None:
            return self._choice_requests(index, prompts)
        if self._task.data.lm_eval is not None:
            return [self._harness_request(index, row)]
        asked: list[Asked] = []
        scored = self.scored[index]
        asks = asks_of(self._task)
        if asks.output:
            prompt = prompts.prompt(row["prompt"], system=row["system"], tools=row["tools"])
            self._opened[index] = self._opens_thoughts(prompt, prompts)
            asked += [Generate(self._key(index, n), prompt, self._seed(row, n)) for n in range(self._task.generation.samples)]
        if asks.likelihood and row["references"]:
            tokens = prompts.likelihood(row["prompt"], _the_one(row["references"]), system=row["system"], tools=row["tools"])
            scored.reference_tokens, scored.evaluated_tokens = sum(tokens.counted), len(tokens.ids)
            asked.append(Evaluate((self, index), tokens))
        if asks.output:
            scored.input_tokens = prompts.tokens_of(prompt)
        return asked

    def _question(self, judging: Judging, index: int, row: ScoreRow, prompts: Prompts) -> list[Asked]:
        try:
            seen, *answered = self._answers.judged(self._seen[index])
        except ValueError as error:
            raise BadRow(str(error)) from error
        scored = self.scored[index]
        scored.answered = all(answered)
        scored.extracted = seen["answer"] if self._task.answer is not None and answered[0] else None
        if not all(answered):
            judging.decide_unanswered(scored, *answered)
            return []
        question = judging.ask(index, scored, seen, lambda text: self._request(index, row, text, prompts))
        return [question] if question is not None else []

    def _choice_requests(self, index: int, prompts: Prompts) -> list[Asked]:
        assert self._task.choices is not None
        row, column = self._seen[index], self._task.data.reference
        reference = value_at(row["kept"], column) if column is not None else None
        choices = self._choices[index] = choosing.ask(self._task.choices, row, prompts, reference=reference)
        self.scored[index].evaluated_tokens = sum(len(tokens.ids) for tokens in choices.tokens)
        return [Evaluate(self._key(index, place), tokens) for place, tokens in enumerate(choices.tokens)]

    def _harness_request(self, index: int, row: ScoreRow) -> Asked:
        request, scored = asked_of((self, index), row["kept"], self._seed(row)), self.scored[index]
        if isinstance(request, Evaluate):
            scored.reference_tokens, scored.evaluated_tokens = sum(request.tokens.counted), len(request.tokens.ids)
        else:
            scored.input_tokens = len(request.prompt)
        return request

    def _key(self, index: int, place: int) -> tuple[OpenPart, int]:
        """The key of the request for a sample or a choice of a row; the first of them has the key of the row."""
        return self, index + place * len(self._rows)

    def _request(self, index: int, row: ScoreRow, text: str, prompts: Prompts) -> Request:
        prompt = prompts.prompt(text)
        self._opened[index] = self._opens_thoughts(prompt, prompts)
        return Generate((self, index), prompt, self._seed(row)), prompts.tokens_of(prompt)

    def _opens_thoughts(self, prompt: Any, prompts: Prompts) -> bool | None:
        """With a schema an answer is JSON from its first character, whatever the prompt has opened."""
        return False if self._fits is not None else prompts.opens_thoughts(prompt)

    def _seed(self, row: ScoreRow, sample: int = 0) -> int | None:
        seed = self._task.generation.seed
        return None if seed is None else (seed + row["index"] + sample * _SEEDS_APART) % 2**31

    def take(self, index: int, answer: Answer) -> list[Asked]:
        """Record an answer for the request with the key `index` of this part. Returns further requests for the row."""
        place, index = divmod(index, len(self._rows))
        row = self.scored[index]
        if answer.error is None and index in self._choices:
            self._places[index][place] = -(answer.nll or 0.0)
            row.latency_s = max(row.latency_s or 0.0, answer.latency_s)
        elif self._task.generation.samples > 1 and answer.error is None and answer.nll is None:
            self._take_sample(index, place, answer)
        else:
            _record(row, answer, self._opened[index])
        if self._judging is not None and answer.error is None:
            further = self._judging.take(index, row)
            if further is not None:
                return [further]
        self._waiting_for[index] -= 1
        if self._waiting_for[index] == 0:
            self._rows_left -= 1
            if self._rows_left == 0:
                self._complete.set_result(None)
        return []

    def _take_sample(self, index: int, place: int, answer: Answer) -> None:
        """Tokens of all samples add up; output, thoughts and end of the row are those of the first one."""
        row = self.scored[index]
        before = (row.output, row.reasoning, row.finish_reason)
        row.reasoning = None
        _record(row, answer, self._opened[index])
        self._places[index][place] = row.output
        if place:
            row.output, row.reasoning, row.finish_reason = before

    def _gather(self, index: int) -> None:
        """Put the samples of a row, or the likelihoods of its choices, into their order."""
        row, found = self.scored[index], self._places[index]
        if not found or row.error is not None:
            return
        in_order = [found[place] for place in sorted(found)]
        if index in self._choices:
            row.choices = choosing.chosen(self._choices[index], in_order)
            row.output = self._choices[index].texts[row.choices.likeliest]
        else:
            row.samples = row.drawn = tuple(in_order)

    def abandon(self, error: BaseException) -> None:
        """Make `finish` raise `error`, because the engine has failed."""
        if not self._complete.done():
            self._complete.set_exception(error)

    def finish(self) -> list[ScoredRow]:
        """Wait for the last answer, and return the scored rows in input order. Raises the engine's error."""
        self._complete.result()
        for index in range(len(self._rows)):
            self._gather(index)
        self._cut_answers()
        if self._similarities is not None:
            self._similarities.measure(self.scored)
        for row, asked in zip(self.scored, self._rows, strict=True):
            if row.error is None:
                self._measure(row, asked["kept"])
            if row.error is not None:
                self._clear(row)
        return self.scored

    def _cut_answers(self) -> None:
        if self._judging is not None:
            return
        for row in self.scored:
            if row.error is None:
                try:
                    self._answers.take(row)
                except ValueError as error:
                    row.error = str(error)

    def _clear(self, row: ScoredRow) -> None:
        """Remove the scores of a row with an error. The answer of a judge without a score stays, with its tokens and its end."""
        row.values, row.sums, row.follows_schema = {}, {}, None
        row.greedy = row.output_ids = None
        row.nll = row.latency_s = row.verdict = row.preference = row.similarity = None
        row.reference_tokens = 0
        row.choices, row.samples, row.drawn = None, (), ()
        row.extracted, row.answered = None, True
        if self._task.judge is None:
            row.output = row.reasoning = row.finish_reason = None
            row.output_tokens = 0

    def _measure(self, row: ScoredRow, columns: Mapping[str, Any]) -> None:
        if self._fits is not None and row.output is not None:
            row.follows_schema = self._fits(row.output)
        answer = compared(row)
        try:
            for name in self._task.measured if self._task.judge is not None else self._task.metrics:
                METRICS[name].measure(row if METRICS[name].of_whole_output else answer)
            self._own.measure(answer, columns)
        except ValueError as error:
            row.error = str(error)

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
        """Model FLOPs of the requests: prefill and decode of outputs, and one pass over prompts and references for likelihoods."""
        generated = [(row.input_tokens, row.output_tokens) for row in self.scored if row.output_tokens]
        evaluated = [row.evaluated_tokens for row in self.scored if row.evaluated_tokens]
        return forward_flops(
            shape,
            prompt_lengths=[prompt for prompt, _ in generated],
            output_lengths=[output for _, output in generated],
            adapter=adapter,
        ) + forward_flops(shape, prompt_lengths=evaluated, output_lengths=[0] * len(evaluated), adapter=adapter, prompt_logits=True)


def _record(row: ScoredRow, answer: Answer, opened: bool | None) -> None:
    """Put an answer into its row, without the model's thoughts. Tokens and thoughts of a judge's answers add up."""
    if answer.error is not None:
        row.error = answer.error
    elif answer.nll is not None:
        row.nll, row.greedy = answer.nll, answer.greedy
    else:
        cut_off = answer.finish_reason == "length" or answer.by_stop_text
        text, thoughts = answer.text or "", answer.reasoning
        row.output, thoughts = (text, thoughts) if thoughts else answer_apart(text, opened=opened, cut_off=cut_off)
        row.reasoning = "\n\n".join(filter(None, (row.reasoning, thoughts))) or None
        row.finish_reason = answer.finish_reason
        row.output_tokens += answer.output_tokens
        row.output_ids = answer.output_ids
    if answer.input_tokens is not None:
        row.input_tokens += answer.input_tokens
    if answer.paid is not None:
        row.paid = row.paid.plus(answer.paid)
    row.latency_s = max(row.latency_s or 0.0, answer.latency_s)


def _the_one(references: Sequence[str]) -> str:
    if len(references) > 1:
        raise BadRow(f"the row has {len(references)} references, but perplexity needs exactly one")
    return references[0]
