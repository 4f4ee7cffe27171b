"""The catalog's lists of models without an attention implementation are those of the installed transformers."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from tests.zoo.proofs import proven_once
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tuneyard.catalog import attention_kinds

_FLAGS = {"flash": "_supports_flash_attn", "sdpa": "_supports_sdpa"}


def _classes(model_type: str, names: str | tuple[str, ...]) -> list[Any]:
    home = model_type_to_module_name(model_type)
    module = importlib.import_module(f"transformers.models.{home}")
    return [getattr(module, name) for name in ((names,) if isinstance(names, str) else names)]


@pytest.mark.parametrize("kind", _FLAGS)
@proven_once
def test_kinds_of_attention(kind: str) -> None:
    differ, looked_at = {}, 0
    for model_type, names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        try:
            classes = _classes(model_type, names)
        except (ImportError, AttributeError):  # models that share another one's classes
            continue
        looked_at += 1
        has = all(getattr(each, _FLAGS[kind], False) for each in classes)
        if has != (kind in attention_kinds(model_type)):
            differ[model_type] = has
    assert differ == {}
    assert looked_at > 150
