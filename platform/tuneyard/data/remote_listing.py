"""The files of a store below a path, from one listing, each with its version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tuneyard.data.access import Bucket, filesystem, patiently
from tuneyard.data.file_types import FoundFile
from tuneyard.data.globs import fixed_folder, is_pattern, matcher
from tuneyard.data.lake_tables import DELTA_LOG
from tuneyard.data.opening import Version, version_of

_ROWS_A_PAGE = 1000


@dataclass(frozen=True)
class RemoteListing:
    """A listing. `path`: the requested path in the store, without a trailing slash. `prefix` + path: the URI of a path.

    `found`: all files below, including hidden ones; for a pattern, all files that match.
    """

    prefix: str
    path: str
    found: tuple[FoundFile, ...]
    delta_tables: tuple[str, ...] = ()
    """Folders of Delta tables below, including tables whose files do not match."""

    def uri_of(self, path: str) -> str:
        return self.prefix + path

    def path_of(self, uri: str) -> str:
        """The path in the store of a URI, which may have another scheme for the same store (s3a://)."""
        bucket = self.prefix.partition("://")[2]
        rest = uri.partition("://")[2]
        return rest.removeprefix(bucket) if bucket else rest

    def below(self) -> Iterator[str]:
        """Names of files relative to the path."""
        start = f"{self.path}/"
        return (file.path.removeprefix(start) for file in self.found if file.path.startswith(start))

    def visible(self) -> list[FoundFile]:
        """The files, except names below the folder that start with . or _ (such as _SUCCESS)."""
        if is_pattern(self.path):
            return list(self.found)
        return [file for file in self.found if not any(part[:1] in (".", "_") for part in file.path[len(self.path) :].split("/"))]


def list_remote(uri: str, scheme: str) -> RemoteListing:
    """List the files of a store. Raises the errors of obstore or fsspec."""
    host, _, path = uri.partition("://")[2].partition("/")
    if scheme in ("s3", "gs"):
        return _bucket_listing(uri, Bucket(scheme, host), path.rstrip("/"))
    return _fsspec_listing(uri, filesystem(scheme, host), f"/{path}")


def _bucket_listing(uri: str, bucket: Bucket, path: str) -> RemoteListing:
    import obstore

    def rows() -> list[dict[str, Any]]:
        pages = obstore.list(bucket.store, fixed_folder(path) or None, chunk_size=_ROWS_A_PAGE)
        return [dict(row) for page in pages for row in page]

    prefix = f"{uri.partition('://')[0]}://{bucket.name}/"
    found = {row["path"]: version_of(row) for row in patiently(rows)}
    if not found and path and not is_pattern(path):
        found = {path: version_of(dict(patiently(lambda: obstore.head(bucket.store, path))))}
    return _listing(prefix, path, found, bucket)


def _fsspec_listing(uri: str, fs: Any, path: str) -> RemoteListing:
    prefix = uri[: len(uri) - len(path)] if uri.endswith(path) else uri
    if not is_pattern(path) and fs.isfile(path):
        return _listing(prefix, path, {path: version_of(fs.info(path))}, fs)
    path = path.rstrip("/")
    rows = fs.find(fixed_folder(path), detail=True)
    return _listing(prefix, path, {"/" + name.lstrip("/"): version_of(row) for name, row in rows.items()}, fs)


def _listing(prefix: str, path: str, found: dict[str, Version], fs: Any) -> RemoteListing:
    tables = {name.partition(f"/{DELTA_LOG}/")[0] for name in found if f"/{DELTA_LOG}/" in name}
    if is_pattern(path):
        fits = matcher(path).fullmatch
        found = {name: version for name, version in found.items() if fits(name)}
    files = (FoundFile(prefix + name, name, seen.size_bytes, seen.etag, fs, seen.modified) for name, seen in found.items())
    return RemoteListing(prefix, path, tuple(files), tuple(sorted(tables)))
