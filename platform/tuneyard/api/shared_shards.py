"""A place for shards that jobs share: a bucket, or a path that is the same on all machines."""

from __future__ import annotations

import re

_SCHEMES = ("s3", "gs", "hdfs", "webhdfs", "swebhdfs", "file")
_URI = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)$")


def place_error(uri: str) -> str | None:
    """Why shards cannot be kept at a path or URI, or None."""
    match = _URI.match(uri)
    if match is None:
        return None if uri.startswith("/") else f"{uri} is not an absolute path, and names no bucket"
    if match["scheme"].lower() not in _SCHEMES:
        return f"{match['scheme']}:// is not a known kind of storage: use an absolute path, {', '.join(f'{each}://' for each in _SCHEMES)}"
    host, _, path = match["rest"].partition("/")
    if "@" in host and match["scheme"].lower() in ("s3", "gs"):
        return "the URI contains credentials: remove them, and set them in the environment"
    if ".." in path.split("/"):
        return f"{uri} has '..' in it: write the folder itself"
    return None if host or match["scheme"].lower() == "file" else f"{uri} names no bucket or host"
