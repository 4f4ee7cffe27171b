"""An encoder of sentences: a folder of transformers, or one in the layout of sentence-transformers, on the CPU in 32-bit floats.

Of that layout `modules.json`, the configuration of pooling, `max_seq_length`, `do_lower_case` and the default prompt are followed. Modules
that are more than transformer, pooling and normalisation are refused, because embeddings without them would be other embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.data.tokenizer import read_tokenizer
from tuneyard.scoring.rows import UNPAID
from tuneyard.scoring.similarity.encoded import Encoded
from tuneyard.scoring.similarity.pooling import modes_of, pooled

_BATCH = 32
_LONGEST = 1 << 20
"""Tokenizers without a limit have a huge number as their limit."""


class SentenceEncoder:
    """Not safe to use from two threads at once. `warnings`: what a user should know of the model, one sentence each."""

    paid = UNPAID

    def __init__(self, folder: Path) -> None:
        """Load the model. Raises BadInput where it is no encoder that can be used."""
        self.warnings: tuple[str, ...] = ()
        own, modes = self._layout(folder)
        self._modes = modes
        settings = _read(own / "sentence_bert_config.json")
        self._lower = bool(settings.get("do_lower_case"))
        self._prompt = _default_prompt(folder)
        self._tokenizer, self._model = _load(own)
        self.longest = _longest(settings, self._tokenizer, self._model)
        try:
            self.encode(["a"])
        except Exception as error:
            raise BadInput(
                f"the embedding model {folder} cannot embed a text: {type(error).__name__}: {error}", "name an encoder, such as a BERT"
            ) from error

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Texts are cut at `longest` tokens.

        Batches depend on the set of texts alone, so that a part that is scored again has the same numbers.
        """
        import torch

        tokens = self._tokenizer([self._prepared(text) for text in texts], truncation=True, max_length=self.longest, verbose=False)
        whole = self._tokenizer([self._prepared(text) for text in texts], verbose=False)["input_ids"]
        ids: list[list[int]] = tokens["input_ids"]
        order = sorted((index for index in range(len(ids)) if ids[index]), key=lambda index: (len(ids[index]), ids[index]))
        found: dict[int, Any] = {}
        with torch.inference_mode():
            for start in range(0, len(order), _BATCH):
                batch = order[start : start + _BATCH]
                for index, vector in zip(batch, self._vectors([ids[each] for each in batch]), strict=True):
                    found[index] = vector
        width = len(next(iter(found.values()))) if found else 1
        vectors = [found.get(index, torch.zeros(width)) for index in range(len(ids))]
        return Encoded(torch.stack(vectors), [len(all_ids) > self.longest for all_ids in whole])

    def _prepared(self, text: str) -> str:
        text = self._prompt + text.strip()
        return text.lower() if self._lower else text

    def _vectors(self, ids: Sequence[list[int]]) -> Any:
        import torch

        length = max(map(len, ids))
        pad = self._tokenizer.pad_token_id or 0
        padded = torch.tensor([each + [pad] * (length - len(each)) for each in ids])
        mask = torch.tensor([[1] * len(each) + [0] * (length - len(each)) for each in ids])
        states = self._model(input_ids=padded, attention_mask=mask).last_hidden_state
        return torch.nn.functional.normalize(pooled(states.float(), mask, self._modes), dim=-1)

    def _layout(self, folder: Path) -> tuple[Path, tuple[str, ...]]:
        """The folder of the transformer, and the ways of pooling."""
        kinds = [(str(each["type"]).rsplit(".", 1)[-1], folder / each.get("path", "")) for each in _read(folder / "modules.json", [])]
        unknown = [kind for kind, _ in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
        if unknown:
            raise BadInput(
                f"the embedding model {folder} has modules that are not known: {', '.join(unknown)}",
                "take a model of a transformer, pooling and normalisation alone",
            )
        own = next((path for kind, path in kinds if kind == "Transformer"), folder)
        pooling = next((path for kind, path in kinds if kind == "Pooling"), None)
        if pooling is None or not (pooling / "config.json").is_file():
            self.warnings = (f"the embedding model {folder.name} has no configuration of pooling: the mean of its tokens is taken",)
            return own, ("mean",)
        config = _read(pooling / "config.json")
        if config.get("include_prompt") is False and _default_prompt(folder):
            raise BadInput(f"the embedding model {folder} leaves its prompt out of pooling, which is not known", "take another model")
        return own, modes_of(config)


def _read(file: Path, otherwise: Any = None) -> Any:
    """JSON of a file; `otherwise`, by default an empty object, where it does not exist. Raises BadInput for a file that is not JSON."""
    if not file.is_file():
        return {} if otherwise is None else otherwise
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise BadInput(f"{file} of the embedding model is not JSON: {error}", "save the model again") from error


def _default_prompt(folder: Path) -> str:
    config = _read(folder / "config_sentence_transformers.json")
    name = config.get("default_prompt_name")
    return str((config.get("prompts") or {}).get(name, "")) if name else ""


def _load(folder: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModel

    try:
        model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(
            f"{folder} holds no encoder that can be loaded: {said_by(error)}", "give a folder with config.json, weights and tokenizer"
        ) from error
    if model.config.is_encoder_decoder:
        raise BadInput(f"the embedding model {folder} is an encoder with a decoder", "take a model of an encoder alone, such as a BERT")
    return read_tokenizer(folder), model


def _longest(settings: dict[str, Any], tokenizer: Any, model: Any) -> int:
    """Most tokens of a text: of `max_seq_length`, the tokenizer's limit and the model's positions the least."""
    limits = (settings.get("max_seq_length"), tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None))
    return min(_LONGEST, *(int(limit) for limit in limits if limit is not None and limit > 0))
