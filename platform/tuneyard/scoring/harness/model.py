"""The model that the harness sees: it turns each request into tokens as the harness's own class for transformers (`HFLM`) does, and records
it, or answers it with what engines have answered.

It follows lm_eval/models/huggingface.py of the version that pyproject.toml pins: special tokens, cuts on the left, windows of rolling
likelihoods, texts that end a generation, and what is cut off behind them.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, has_bos_prefix, normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from tuneyard.scoring.harness.answers import Answered
from tuneyard.scoring.harness.rows import NO_CONTEXT, HarnessRequest, Recorded
from tuneyard.scoring.harness.sampling import NotPossible, sampling_of
from tuneyard.scoring.harness.unusable import Unusable

MOST_NEW_TOKENS = 256
"""The harness's default for a request that names no number."""


class AllRecorded(BaseException):
    """All requests are recorded: the harness need not go on to its figures. Not an Exception, which code of tasks may catch."""


class EngineModel(TemplateLM):
    """`answered`: the engines' answers; None: record the requests, and raise AllRecorded after `expected()` of them."""

    def __init__(
        self,
        tokenizer: Any,
        max_length: int,
        defaults: Mapping[str, Any],
        expected: Callable[[], int],
        answered: Answered | None = None,
    ) -> None:
        """`max_length`: tokens of a context with what follows it, as `max_length` of HFLM. `defaults`: see `sampling_of`."""
        super().__init__()
        self.tokenizer = tokenizer
        self.recorded = Recorded()
        self.cut: Counter[str] = Counter()
        """Task -> requests whose context was cut on the left."""
        self._max_length, self._defaults = max_length, defaults
        self._expected, self._answered, self._seen = expected, answered, 0
        self._drawn: Counter[bytes] = Counter()

    @property
    def eot_token_id(self) -> int:
        token: int = self.tokenizer.eos_token_id
        return token

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else int(bos)

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        how = {"tokenize": False, "add_generation_prompt": add_generation_prompt, "continue_final_message": not add_generation_prompt}
        try:
            return str(self.tokenizer.apply_chat_template(chat_history, **how))
        except jinja2.exceptions.TemplateError:  # a template without a place for system turns
            return str(self.tokenizer.apply_chat_template([turn for turn in chat_history if turn["role"] != "system"], **how))

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        special = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        if add_special_tokens is None and has_bos_prefix(string, self.tokenizer.decode(self.prefix_token_id)):
            special = {"add_special_tokens": False}
        return list(self.tokenizer.encode(string, **special))

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:  # noqa: ARG002 - its interface
        found = []
        for request in requests:
            found += self._of_one(request, lambda each: super(EngineModel, self).loglikelihood([each], disable_tqdm=True))
        self._count(requests)
        return found

    def _loglikelihood_tokens(self, requests: list[Any], **_: Any) -> list[tuple[float, bool]]:
        return [self._evaluate(context, continuation, *texts) for texts, context, continuation in requests]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:  # noqa: ARG002
        found = [self._of_one(request, self._rolling) for request in requests]
        self._count(requests)
        return found

    def _rolling(self, request: Any) -> float:
        """The sum over windows without overlap in what counts, each with as much context as there is room for."""
        (text,) = request.args
        windows = get_rolling_token_windows(
            token_list=self.tok_encode(text), prefix_token=self.prefix_token_id, max_seq_len=self._max_length, context_len=1
        )
        total = 0.0
        for window in windows:
            context, continuation = make_disjoint_window(window)
            total += self._evaluate(context, continuation, "", text)[0]
        return total

    def _evaluate(self, context: Sequence[int], continuation: Sequence[int], before: str, text: str) -> tuple[float, bool]:
        """The log-likelihood of a continuation in nats, and whether it is what the model would say."""
        if not continuation:
            raise Unusable(f"the tokenizer has no token of its own for the continuation {text[:80]!r}", _OF_THE_TASK)
        if len(continuation) > self._max_length:
            raise Unusable(
                f"the continuation {text[:80]!r} has {len(continuation)} tokens, and there is room for {self._max_length}", _LONGER
            )
        ids = [*context, *continuation]
        self.cut[self._task] += len(ids) > self._max_length + 1
        answer = self._answer(
            HarnessRequest(
                array("i", ids[-(self._max_length + 1) :]),
                len(continuation),
                prompt=before if before.strip() else NO_CONTEXT,
                continuation=text,
            )
        )
        return (0.0, False) if answer is None else answer.likelihood

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002 - its interface
        found = [self._of_one(request, self._generate) for request in requests]
        self._count(requests)
        return found

    def _generate(self, request: Any) -> str:
        text, wished = request.args
        asked: dict[str, Any] = dict(normalize_gen_kwargs(wished, MOST_NEW_TOKENS))
        until = handle_stop_sequences(asked.pop("until", None), eos=self.tokenizer.decode(self.eot_token_id))
        new_tokens = asked.pop("max_gen_toks")
        room = self._max_length - new_tokens
        if room <= 0:
            raise Unusable(f"it generates up to {new_tokens} tokens, and prompt and answer have room for {self._max_length}", _LONGER)
        if has_bos_prefix(text, getattr(self.tokenizer, "bos_token", None)):
            ids = list(self.tokenizer.encode(text, add_special_tokens=False))
        else:
            ids = list(self.tokenizer.encode(text))
        if not ids:
            raise Unusable("a prompt is empty", _OF_THE_TASK)
        self.cut[self._task] += len(ids) > room
        try:
            sampling = {"max_tokens": new_tokens, "stop": [each for each in until if each], **sampling_of(asked, self._defaults)}
        except NotPossible as error:
            raise Unusable(f"{error}, which engines do not do", _OF_THE_TASK) from error
        prompt = HarnessRequest(array("i", ids[-room:]), 0, json.dumps(sampling), prompt=text if text.strip() else NO_CONTEXT)
        answer = self._answer(prompt, drawn=sampling["temperature"] > 0)
        if answer is None:
            return ""
        said = self.tokenizer.decode(answer.output, skip_special_tokens=True)
        return str(postprocess_generated_text(generation=said, stop=until, think_end_token=None))

    def _of_one(self, request: Any, answer: Callable[[Any], Any]) -> Any:
        """`answer(request)`, with the request's task and document in errors."""
        self._task, self._document = str(request.task_name), int(request.doc_id or 0)
        try:
            return answer(request)
        except Unusable as error:
            raise Unusable(f"task {self._task}, document {self._document}: {error.cause}", error.next_step) from error

    def _answer(self, request: HarnessRequest, *, drawn: bool = False) -> Any:
        """The answer of the engines; None where requests are recorded. `drawn`: the harness draws anew for each of equal requests."""
        if drawn:
            number = self._drawn[request.key]
            self._drawn[request.key] += 1
            request = HarnessRequest(request.ids, 0, request.sampling, number, request.prompt)
        if self._answered is None:
            self.recorded.add(request, self._task, self._document)
            return None
        return self._answered.of(request.key)

    def _count(self, requests: Sequence[Any]) -> None:
        self._seen += len(requests)
        if self._answered is None and self._seen >= self._expected():
            raise AllRecorded


_OF_THE_TASK = "correct the task: copy its YAML into the folder of data.lmEval.folder, and change it there; or leave the task out"
_LONGER = f"raise engine.maxLength where the model has more positions; or {_OF_THE_TASK}"
