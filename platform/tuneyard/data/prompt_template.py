"""The chat template that is saved with a model. Its prompts open answers in the same way as the training text.

Qwen3 writes an empty thinking block before an answer without reasoning, but leaves it out of prompts. A model trained on such answers then
writes the block into each of its own answers. A template with a switch for thinking gets a default for it; others get the missing text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tuneyard.data.answer_form import SWITCH, answer_form

_DEFAULT = "{{% if {switch} is not defined %}}{{% set {switch} = {value} %}}{{% endif +%}}"
_DEFAULTS = {value: _DEFAULT.format(switch=SWITCH, value=str(value).lower()) for value in (True, False)}
_OPENED = re.compile(r'\{%[+-] if add_generation_prompt %\}\{\{ "(?:[^"\\]|\\.)*" \}\}\{% endif %\}$')


def original(template: str) -> str:
    """The template without the additions of `saved_template`."""
    for default in _DEFAULTS.values():
        template = template.removeprefix(default)
    return _OPENED.sub("", template)


def saved_template(template: str, special_tokens: dict[str, Any], *, thinking: bool, tools: bool) -> str:
    """`template` for a model that was trained on samples with reasoning (`thinking`) or without, with tools or without."""
    form = answer_form(template, special_tokens)
    wished = form.thinking if thinking else form.quiet
    changed = _DEFAULTS[thinking] + template if thinking not in form.defaults else template
    rest = form.unthought.removeprefix(wished)
    if not thinking and not tools and rest.strip() and form.unthought.startswith(wished):
        tag = "{%-" if template.endswith("}\n") else "{%+"  # the last line break is not part of the text
        changed += f"{tag} if add_generation_prompt %}}{{{{ {json.dumps(rest)} }}}}{{% endif %}}"
    return changed
