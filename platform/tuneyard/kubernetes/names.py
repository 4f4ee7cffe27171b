"""Names of objects: which ones Kubernetes takes (RFC 1123), and how a longer one is shortened."""

from __future__ import annotations

import re
from hashlib import sha256

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HASH_LENGTH = 6


def is_subdomain(text: str) -> bool:
    """Whether `text` can name an object of most kinds: parts joined by dots, at most 253 characters. `is_dns_label` is for one part."""
    return len(text) <= 253 and all(_LABEL.fullmatch(part) for part in text.split("."))


def cut(name: str, longest: int) -> str:
    """The start of a name, of at most `longest` characters: for names that something else beside it keeps apart."""
    return name[:longest].rstrip("-")


def shortened(name: str, longest: int) -> str:
    """`name`, or its start and a hash of the whole: names of one start stay apart."""
    if len(name) <= longest:
        return name
    return f"{cut(name, longest - _HASH_LENGTH - 1)}-{sha256(name.encode()).hexdigest()[:_HASH_LENGTH]}"
