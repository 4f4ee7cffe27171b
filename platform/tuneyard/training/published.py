"""Names in what leaves this machine, such as a model card: others know a name on the Hugging Face hub and a URI, and no local path."""

from __future__ import annotations

import re
from pathlib import PurePath

from tuneyard.api.local_files import looks_like_path
from tuneyard.storage import is_local, local_path

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_HUB_ID = re.compile(rf"(?:{_PART}/)?{_PART}")
_HF = "hf://"


def is_hub_id(name: str) -> bool:
    """Whether `name` can be the id of a repository on the Hugging Face hub: `name`, or `owner/name`, of at most 96 characters."""
    sound = _HUB_ID.fullmatch(name) and len(name) <= 96 and "--" not in name and ".." not in name and not name.endswith(".git")
    return bool(sound) and not looks_like_path(name)


def data_set_id(source: str | None) -> str | None:
    """The id of a data set on the hub, of a source such as hf://owner/name/config; None for other sources."""
    if source is None or not source.startswith(_HF):
        return None
    name = "/".join(source.removeprefix(_HF).split("/")[:2])
    return name if is_hub_id(name) else None


def known_to_others(uri: str) -> str:
    """`uri` as others may read it: the last name of a local path, and anything else unchanged."""
    if is_hub_id(uri) or not is_local(uri):
        return uri
    return PurePath(local_path(uri)).name or uri


def without_paths(text: str) -> str:
    """Markdown in which code that is a local path is cut to its last name, for cards that an earlier version of Tuneyard wrote."""
    return re.sub(r"`((?:file://)?[/~][^`\n]*)`", lambda found: f"`{PurePath(found[1]).name}`", text)
