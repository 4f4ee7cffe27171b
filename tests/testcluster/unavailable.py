"""Why clusters cannot run on a machine."""

from __future__ import annotations


class Unavailable(RuntimeError):
    """Something that the clusters need is missing here, and cannot be built or installed; says what, and how to get it."""
