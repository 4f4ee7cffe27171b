"""Answers of a model to single prompts, by transformers in this process, for a quick look at a trained model.

A score task answers thousands of prompts in an engine. This module loads the weights once, needs no vLLM, and streams answers. Prompts are
tokenised by the same code as in score tasks and in training.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.tqdm import enable_progress_bars
from transformers import AutoModelForCausalLM, GenerationConfig, TextStreamer, set_seed
from transformers.utils import logging

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.data.prompt_form import templated
from tuneyard.data.tokenizer import read_tokenizer
from tuneyard.scoring.prompts import BadRow, PromptEncoder
from tuneyard.scoring.settings import tokenizer_folder

_LONGEST = 8192
"""Maximum tokens of prompt and answer where the model's configuration has no limit."""


class Generator:
    """A loaded model. `model`: a folder with weights, or a Hugging Face name; `adapter`: a folder that PEFT saved."""

    def __init__(self, model: str, adapter: str | None, *, chat: bool | None) -> None:
        """`chat` as in `PromptEncoder`. Raises BadInput where weights, adapter or tokenizer cannot be loaded."""
        _be_quiet()
        self._tokenizer = read_tokenizer(tokenizer_folder(Path(model), Path(adapter)) if adapter else model)  # PEFT saves none
        try:
            self._model = _load(model, adapter)
        except (OSError, ValueError) as error:
            raise BadInput(f"{model} cannot be loaded: {said_by(error)}", "check that config.json and weights are of one model") from error
        self._adapted = adapter is not None
        self._length = int(getattr(self._model.config, "max_position_embeddings", None) or _LONGEST)
        self._prompts = PromptEncoder(self._tokenizer, chat=chat, max_length=self._length, templated=False)

    @property
    def chats(self) -> bool:
        """Whether prompts are rendered by the chat template."""
        return self._prompts.chats

    @property
    def has_adapter(self) -> bool:
        """Whether an adapter can be switched off."""
        return self._adapted

    def answer(
        self,
        prompt: str | list[dict[str, Any]],
        write: Callable[[str], None],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        seed: int | None = None,
        tools: Sequence[Any] = (),
        adapted: bool = True,
    ) -> str:
        """The answer to a prompt, or to the messages of a chat. `write` gets the answer piece by piece.

        `temperature` 0: always the likeliest token. `adapted` false: the base answers, without the adapter, to the same tokens. Raises
        BadInput for a prompt that is empty, longer than the model's limit, or refused by the chat template.
        """
        if not isinstance(prompt, str):  # as in the training: a template of columns made what the user's turn holds
            prompt = [self._templated(message) for message in prompt]
        try:
            ids = self._prompts.prompt(prompt, tools=list(tools) or None)
        except BadRow as error:
            raise BadInput(f"this prompt cannot be answered: {error}", "give another prompt") from error
        if seed is not None:
            set_seed(seed)
        given = torch.tensor([ids], device=self._model.device)
        settings = self._settings(min(max_tokens, self._length - len(ids)), temperature)
        streamer = _Stream(self._tokenizer, write, settings.eos_token_id)
        with nullcontext() if adapted or not self._adapted else self._model.disable_adapter():
            made = self._model.generate(
                input_ids=given,
                attention_mask=torch.ones_like(given),
                generation_config=settings,
                streamer=streamer,
            )
        answer = made[0, len(ids) :].tolist()
        if answer and answer[-1] in settings.eos_token_id:
            answer.pop()  # the template's end may be an added token that is not special
        return str(self._tokenizer.decode(answer, skip_special_tokens=True))

    def _templated(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["role"] != "user" or not isinstance(message["content"], str):
            return message
        return {**message, "content": templated(self._tokenizer, message["content"])}

    def _settings(self, max_tokens: int, temperature: float) -> GenerationConfig:
        """Settings as in score tasks: of the model's own defaults only the end tokens, and in chats the token that ends turns."""
        own = self._model.generation_config.eos_token_id
        ends = {self._tokenizer.eos_token_id, *self._prompts.ends, *(own if isinstance(own, list) else [own])} - {None}
        pad = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else self._tokenizer.eos_token_id
        sampling: dict[str, Any] = {"temperature": temperature, "top_p": 1.0, "top_k": 0} if temperature else {}
        return GenerationConfig(
            max_new_tokens=max_tokens,
            eos_token_id=sorted(ends),
            pad_token_id=pad,
            repetition_penalty=1.0,
            do_sample=bool(temperature),
            **sampling,
        )


class _Stream(TextStreamer):
    """Passes text on as soon as its words are complete."""

    def __init__(self, tokenizer: Any, write: Callable[[str], None], ends: list[int]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self._write = write
        self._ends = ends

    def put(self, value: Any) -> None:
        if self.next_tokens_are_prompt or int(value.flatten()[-1]) not in self._ends:
            super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:  # noqa: ARG002 - transformers' signature
        if text:
            self._write(text)


def _load(model: str, adapter: str | None) -> Any:
    """The model, on the GPU in its saved precision, or on the CPU in fp32."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "auto" if device == "cuda" else torch.float32
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    if adapter is not None:
        if not (Path(adapter) / "adapter_config.json").is_file():
            raise ValueError(f"{adapter} holds no adapter_config.json")
        from peft import PeftModel

        loaded = PeftModel.from_pretrained(loaded, adapter)
    return loaded.to(device).eval()


def _be_quiet() -> None:
    """Silence the libraries: no warnings, and no progress bars except for downloads."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    enable_progress_bars()
    warnings.filterwarnings("ignore", module=r"transformers|peft|torch")
