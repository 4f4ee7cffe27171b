"""The encoder of a data set: its chat template, the tokens that carry loss, and the treatment of samples that are too long."""

from __future__ import annotations

from typing import Any

from tuneyard.api import BadInput, TrainData
from tuneyard.data.chat import choose_template
from tuneyard.data.roles import Roles
from tuneyard.data.samples import Objective
from tuneyard.data.tokens import Encoder, Loss, Overlong


def encoder_of(spec: TrainData, tokenizer: Any, roles: Roles, objective: Objective) -> Encoder:
    """The encoder for `spec`. Raises BadInput for a tokenizer without offsets, or without the end token that completions need."""
    template = choose_template(tokenizer, spec.chat_template) if roles.as_messages else None
    if template is not None and not getattr(tokenizer, "is_fast", False):
        raise BadInput("the tokenizer gives no character offsets of tokens", "use a model that comes with a tokenizer.json")
    if tokenizer.eos_token_id is None and roles.format in ("prompt-completion", "preference") and not roles.as_messages:
        raise BadInput(
            "the tokenizer has no end token: a model trained on these completions does not learn where to stop",
            "name one in tokenizer_config.json (eos_token), or set data.chat: true with a chat template that ends turns",
        )
    splits = spec.pack and roles.format == "text" and spec.overlong == "truncate"
    overlong: Overlong = "split" if splits else spec.overlong
    together = 2 if roles.format == "preference" else 1
    return Encoder(tokenizer, _loss(spec, roles, objective), spec.max_length, overlong, template, together, spec.control_tokens)


def _loss(spec: TrainData, roles: Roles, objective: Objective) -> Loss:
    """The tokens that carry loss. `auto`: all tokens for clm and text, else the assistant's turns or the completion. The answers of a
    pair of messages may have several turns.
    """
    if spec.loss_on == "auto":
        if objective == "clm" or roles.format == "text":
            return "all"
        return "assistant" if roles.format == "chat" or (roles.format == "preference" and roles.as_messages) else "completion"
    if roles.format == "text" and spec.loss_on != "all":
        raise BadInput(
            f"data.lossOn: {spec.loss_on} needs chats or completions; this is plain text", "set data.lossOn: all, or leave it to auto"
        )
    return spec.loss_on
