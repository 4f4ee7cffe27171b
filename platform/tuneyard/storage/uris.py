"""URIs of storage: local paths (`file`), object stores (`s3`, `gs`), HDFS (`hdfs`, `webhdfs`). Pure text functions, except for `~`."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from tuneyard.api import BadInput

OBJECT_SCHEMES = ("s3", "gs")
HDFS_SCHEMES = ("hdfs", "webhdfs", "swebhdfs")
SCHEMES = ("file", *OBJECT_SCHEMES, *HDFS_SCHEMES)

_SCHEME = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(uri: str) -> str:
    """Scheme in lower case; `file` for a plain path."""
    match = _SCHEME.match(uri)
    return match["scheme"].lower() if match else "file"


def is_local(uri: str) -> bool:
    """Whether a URI is a plain path or has the scheme file://."""
    return scheme_of(uri) == "file"


def local_path(uri: str) -> Path:
    """The path of a local URI; `~` is expanded. Raises BadInput for URIs of another machine."""
    if not is_local(uri):
        raise BadInput(f"{uri} is not a local path", "give a path or a file:// URI")
    if not _SCHEME.match(uri):
        return Path(uri).expanduser()
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise BadInput(f"{uri} names the machine {parts.netloc!r}", f"write file:///{parts.netloc}{parts.path} with three slashes")
    return Path(unquote(parts.path))


def join(uri: str, *parts: str) -> str:
    """`uri` with path parts appended: join("s3://b/x", "y", "z.json") == "s3://b/x/y/z.json"."""
    cleaned = [part.strip("/") for part in parts if part.strip("/")]
    if not cleaned:
        return uri
    return "/".join([uri.rstrip("/"), *cleaned] if uri else cleaned)


def absolute(reference: str, base: str | Path) -> str:
    """`reference` as an absolute path or URI. A URI stays unchanged; a relative path starts at `base`, a folder or a URI."""
    if _SCHEME.match(reference):
        return reference
    path = Path(reference).expanduser()
    if path.is_absolute():
        return str(path)
    if is_local(str(base)):
        return str((local_path(str(base)) / path).absolute())
    return join(str(base), clean(reference))


def split_bucket(uri: str) -> tuple[str, str]:
    """Bucket and key prefix of an object-store URI. Raises BadInput where the bucket is missing or the URI contains credentials."""
    rest = uri.split("://", 1)[1]
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket:
        raise BadInput(
            f"a {scheme_of(uri)}:// URI contains credentials",
            "remove them; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS, in the environment",
        )
    if not bucket:
        raise BadInput(f"{uri} names no bucket", f"write {scheme_of(uri)}://BUCKET/FOLDER")
    return bucket, prefix.strip("/")


def clean(path: str) -> str:
    """A path inside a store: relative, `/` between parts, without `.` parts. Raises BadInput where the path leaves the store."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", ".")]
    if ".." in parts:
        raise BadInput(f"{path!r} leaves its folder", "give a path without '..'")
    return "/".join(parts)
