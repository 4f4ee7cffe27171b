"""Checks that the tokenizer belongs to the model. Otherwise, token ids beyond the embedding end a run on GPUs with an assertion that names
nothing.

More rows than tokens are usual: families pad their embeddings. In full training, tokens that were added to a tokenizer get new rows.
"""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, set_seed

from tuneyard.api import BadInput
from tuneyard.training.request import TrainRequest


def check_vocabulary(tokenizer: Any, request: TrainRequest, start: str) -> None:
    """Raises BadInput if the model has no rows for some tokens of the tokenizer, and the task cannot add them."""
    model = request.task.model
    config = AutoConfig.from_pretrained(start, revision=model.revision, trust_remote_code=model.trust_remote_code)
    rows = getattr(config.get_text_config(), "vocab_size", None)
    if rows is None or tokens_of(tokenizer) <= rows:
        return
    added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items()}
    beyond = sorted((number, token) for token, number in tokenizer.get_vocab().items() if number >= rows)
    foreign = [token for _, token in beyond if token not in added]
    if foreign:
        raise BadInput(
            f"the tokenizer of {request.model_uri} has {tokens_of(tokenizer)} tokens and the model {rows}: it belongs to another model",
            "put the tokenizer that the model was trained with beside its weights",
        )
    names = ", ".join(token for _, token in beyond[:3]) + (", …" if len(beyond) > 3 else "")
    if request.task.method.adapter is not None:
        raise BadInput(
            f"the tokenizer of {request.model_uri} has tokens that the model has no embedding for: {names}",
            "train them with method: full first (a few steps are enough), or take them out of the tokenizer",
        )


def fit_embedding(model: Any, tokenizer: Any, request: TrainRequest) -> None:
    """Add rows for tokens that were added to the tokenizer, near the mean of the others, and equal on every rank."""
    if tokens_of(tokenizer) > model.get_input_embeddings().num_embeddings:
        set_seed(request.task.seed)
        model.resize_token_embeddings(tokens_of(tokenizer))


def tokens_of(tokenizer: Any) -> int:
    """Rows of an embedding that the tokenizer needs. Ids may have gaps."""
    return int(max([len(tokenizer) - 1, *tokenizer.get_vocab().values()])) + 1
