"""Secrets stay out of what people and machines read: messages, logs, events, history, reports, artifacts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_NAME = re.compile(r"(?i)(secret|password|passwd|api_?key|access_?key|private_?key|credential|(?:^|_)(?:token|sas)(?:$|_))")
# Repetitions before a fixed text are bounded: without bounds, a text of 100 KB takes minutes.
_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,30}://)[^/@\s'\"]+@", re.IGNORECASE)
_QUERY = re.compile(r"(?i)(?P<name>[?&](?:x-amz-[a-z-]*|x-goog-[a-z-]*|sig|token|delegation|password|signature|awsaccesskeyid)=)[^&\s'\"]+")
_FLAG = re.compile(r"(?i)(?<!-)(?P<flag>--?[a-z-]{0,40}(?:token|password|secret|key)[= ])(?!\$)\S+")
_SHORTEST = 6
"""Shorter values are not searched for: they would hide innocent words."""


def is_secret_name(name: str) -> bool:
    """True if an environment variable or field of this name usually holds a secret."""
    return _NAME.search(name) is not None


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without user names and passwords in URIs, signatures in query strings, and the values of secret-like variables of
    `environment` (default: this process's).
    """
    text = _USERINFO.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _QUERY.sub(rf"\g<name>{HIDDEN}", text)
    text = _FLAG.sub(rf"\g<flag>{HIDDEN}", text)
    for name, value in (os.environ if environment is None else environment).items():
        if len(value) >= _SHORTEST and is_secret_name(name) and value in text:
            text = text.replace(value, HIDDEN)
    return text


def redact_fields(value: Any) -> Any:
    """The same JSON-like value with secrets hidden: strings by `redact`; secret-named fields and variables as a whole."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        named = is_secret_name(str(value.get("name", "")))
        return {key: HIDDEN if _holds_secret(key, item, named) else redact_fields(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_fields(item) for item in value]
    return value


def _holds_secret(key: object, item: object, secret_variable: bool) -> bool:
    # A JobSpec holds an environment variable as `{name: HF_TOKEN, value: hf_…}`, and `apiKeyVariable` is the name of one.
    named = is_secret_name(str(key)) and not str(key).endswith("Variable")
    return isinstance(item, str) and bool(item) and (named or (secret_variable and key == "value"))
