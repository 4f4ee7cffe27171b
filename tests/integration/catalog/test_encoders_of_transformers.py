"""The catalog's list of encoders is that of the installed transformers: asked of each class that may be either."""

from __future__ import annotations

from typing import Any

import torch
from tests.zoo.configs import tiny_config_of
from tests.zoo.proofs import proven_once
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tuneyard.api import BadInput
from tuneyard.catalog import refuse_encoders
from tuneyard.training.proofs.sight import refuse_foresight


def refused(model_type: str) -> bool:
    try:
        refuse_encoders({"model_type": model_type})
    except BadInput:
        return True
    return False


def looks_ahead(config: Any) -> bool:
    try:
        model = AutoModelForCausalLM.from_config(config).eval()
    except AssertionError:  # Reformer: is_decoder must be set
        return True

    def logits_of(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(**inputs).logits
        return found

    try:
        refuse_foresight(logits_of, config.vocab_size)
    except BadInput:
        return True
    return False


@proven_once
def test_encoders_are_the_classes_that_see_ahead_unless_they_are_made_decoders() -> None:
    either = [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if "is_decoder" in CONFIG_MAPPING[name].__dataclass_fields__]
    asked = {}
    for name in either:
        config = tiny_config_of(name)
        config.is_decoder, config.initializer_range = False, 0.1  # weights as far from 0 as trained ones
        if not config.is_encoder_decoder and name != "trocr":  # refused for its loss: below
            asked[name] = looks_ahead(config)

    differ = {name: ahead for name, ahead in asked.items() if ahead != refused(name)}
    assert differ == {}
    assert sum(asked.values()) > 15


@proven_once
def test_what_is_not_refused_learns_the_next_token() -> None:
    """A loss that compares each token with itself, as of BART's decoder alone, makes a model that copies."""
    wrong = {}
    for name in ("bart", "trocr", "llama", "gpt2", "opt", "bloom", "mamba", "ctrl", "biogpt"):
        torch.manual_seed(0)
        config = tiny_config_of(name)
        config.is_encoder_decoder = False
        model = AutoModelForCausalLM.from_config(config).eval()
        ids = torch.randint(5, 380, (1, 12))
        with torch.no_grad():
            made = model(input_ids=ids, labels=ids)
        shifted = torch.nn.functional.cross_entropy(made.logits[0, :-1].float(), ids[0, 1:])
        wrong[name] = not torch.isclose(made.loss, shifted, atol=1e-4)

    assert {name: refused(name) for name in wrong} == wrong
    assert wrong["bart"]
