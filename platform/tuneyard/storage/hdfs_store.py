"""HDFS as a store: webhdfs:// over HTTP, without further software; hdfs:// through libhdfs, with Hadoop's client and Java."""

from __future__ import annotations

import os
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from tuneyard.api import BadInput, StorageError
from tuneyard.api.secrets import redact
from tuneyard.storage.errors import AlreadyExists, NotFound, shortened
from tuneyard.storage.files import CHUNK_BYTES, exactly
from tuneyard.storage.forks import refuse_in_fork
from tuneyard.storage.retry import with_retries
from tuneyard.storage.store import FileInfo, Store
from tuneyard.storage.uris import clean, scheme_of

Result = TypeVar("Result")

WEBHDFS_PORT = 9870
REQUEST_TIMEOUT_S = (10, 120)
"""Timeouts for the connection and for the response."""


def open_hdfs_store(uri: str) -> HdfsStore:
    """The store at hdfs://NAMENODE[:PORT]/PATH or webhdfs://[USER@]NAMENODE[:PORT]/PATH.

    The user is HADOOP_USER_NAME unless the URI names one. Raises BadInput for a URI with a password, StorageError where
    libhdfs is missing.
    """
    parts = urlsplit(uri)
    if parts.password:
        raise BadInput("an HDFS URI contains a password", "remove the password")
    user = parts.username or os.environ.get("HADOOP_USER_NAME")
    if scheme_of(uri) == "hdfs":
        return LibHdfsStore(uri, parts.path, _libhdfs(parts, user))
    if not parts.hostname:
        raise BadInput(f"{uri} has no host name", "write webhdfs://NAMENODE:9870/PATH")
    return WebHdfsStore(uri, parts.path, _webhdfs(parts, user))


def _libhdfs(parts: SplitResult, user: str | None) -> Any:
    from fsspec.implementations.arrow import HadoopFileSystem

    try:
        return HadoopFileSystem(parts.hostname or "default", parts.port or 0, user, skip_instance_cache=True)
    except OSError as error:
        raise StorageError(
            f"cannot reach {redact(parts.geturl())}: {shortened(error)}",
            f"use webhdfs://{parts.hostname or 'NAMENODE'}:{WEBHDFS_PORT}{parts.path}, which needs no further software; "
            "hdfs:// needs Java and Hadoop's libhdfs (set HADOOP_HOME, JAVA_HOME and CLASSPATH)",
        ) from error


def _webhdfs(parts: SplitResult, user: str | None) -> Any:
    from fsspec.implementations.webhdfs import WebHDFS

    filesystem = WebHDFS(
        parts.hostname, parts.port or WEBHDFS_PORT, user=user, use_https=parts.scheme.lower() == "swebhdfs", skip_instance_cache=True
    )
    _limit_waiting(filesystem.session)
    return filesystem


def _limit_waiting(session: Any) -> None:
    """Set timeouts: the library requests has none by default."""
    send = session.send

    def send_with_timeout(request: Any, **options: Any) -> Any:
        return send(request, **{**options, "timeout": options.get("timeout") or REQUEST_TIMEOUT_S})

    session.send = send_with_timeout


class HdfsStore(Store):
    """A store on HDFS. Files are written under a temporary name in the same folder, then renamed: renames in HDFS are atomic."""

    def __init__(self, uri: str, root: str, filesystem: Any) -> None:
        super().__init__(uri)
        self._root = "/" + root.strip("/")
        self._fs = filesystem

    @abstractmethod
    def _rename(self, source: str, target: str, *, replace: bool) -> None:
        """Raises FileExistsError where `target` exists and `replace` is false."""

    def _path(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{clean(path)}".rstrip("/") or "/"

    def put(self, path: str, data: bytes) -> None:
        self._attempt(path, "write", lambda: self._write(path, [data], replace=True))

    def create(self, path: str, data: bytes) -> None:
        try:
            self._attempt(path, "write", lambda: self._write(path, [data], replace=False))
        except FileExistsError as error:
            raise AlreadyExists(f"{redact(self.url(path))} exists already", "another process was first") from error

    def put_stream(self, path: str, chunks: Iterable[bytes], size_bytes: int) -> None:
        # No retry: consumed `chunks` cannot be read again.
        with self._errors(path, "write"):
            self._write(path, exactly(chunks, size_bytes, self.url(path)), replace=True)

    def _write(self, path: str, chunks: Iterable[bytes], *, replace: bool) -> None:
        target = self._path(path)
        folder, _, name = target.rpartition("/")
        staged = f"{folder}/.{name}.tmp-{uuid.uuid4().hex}"
        self._fs.makedirs(folder or "/", exist_ok=True)
        try:
            with self._fs.open(staged, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            self._rename(staged, target, replace=replace)
        except BaseException:
            with self._errors(path, "write"):
                self._fs.rm(staged)
            raise

    def get(self, path: str) -> bytes:
        return self._attempt(path, "read", lambda: b"".join(self._read(path)))

    def get_stream(self, path: str) -> Iterator[bytes]:
        with self._errors(path, "read"):
            yield from self._read(path)

    def _read(self, path: str) -> Iterator[bytes]:
        left = int(self._fs.info(self._path(path))["size"])
        with self._fs.open(self._path(path), "rb") as file:
            while left > 0:
                chunk = file.read(min(CHUNK_BYTES, left))
                if not chunk:
                    raise OSError("the connection ended before the file did")
                left -= len(chunk)
                yield chunk

    def exists(self, path: str) -> bool:
        return bool(self._attempt(path, "look for", lambda: self._fs.isfile(self._path(path))))

    def list(self, prefix: str = "") -> Sequence[FileInfo]:
        found = self._attempt(prefix, "list", lambda: self._fs.find(self._path(prefix), detail=True))
        files = [self._info(name, info) for name, info in found.items()]
        return sorted((file for file in files if ".tmp-" not in file.path.rsplit("/", 1)[-1]), key=lambda file: file.path)

    def _info(self, name: str, info: dict[str, Any]) -> FileInfo:
        path = "/" + name.strip("/")
        changed = info.get("modificationTime", info.get("mtime", ""))
        return FileInfo(path[len(self._root.rstrip("/")) + 1 :], int(info["size"]), str(changed), _seconds(changed))

    def delete(self, path: str) -> None:
        try:
            self._attempt(path, "remove", lambda: self._fs.rm(self._path(path)))
        except NotFound:
            return

    def delete_prefix(self, prefix: str) -> None:
        super().delete_prefix(prefix)
        try:
            self._attempt(prefix, "remove", lambda: self._fs.rm(self._path(prefix), recursive=True))
        except NotFound:
            return

    def _attempt(self, path: str, doing: str, action: Callable[[], Result]) -> Result:
        with self._errors(path, doing):
            return with_retries(action, _is_transient)

    @contextmanager
    def _errors(self, path: str, doing: str) -> Iterator[None]:
        url = redact(self.url(path))
        refuse_in_fork(url, doing)
        try:
            yield
        except (StorageError, FileExistsError):
            raise
        except FileNotFoundError as error:
            raise NotFound(f"cannot {doing} {url}: it does not exist", "check the path") from error
        except PermissionError as error:
            raise StorageError(
                f"cannot {doing} {url}: {shortened(error)}",
                "set HADOOP_USER_NAME to a user with rights there, or write elsewhere with --out",
            ) from error
        except (OSError, RuntimeError, ValueError) as error:
            if _is_absent(error):
                raise NotFound(f"cannot {doing} {url}: it does not exist", "check the path") from error
            # Errors of requests are OSErrors; fsspec raises RuntimeError with the name node's message.
            raise StorageError(
                f"cannot {doing} {url}: {shortened(error)}",
                "check that the name node is up and not in safe mode; then try again",
            ) from error


class WebHdfsStore(HdfsStore):
    """HDFS over its HTTP interface."""

    def _rename(self, source: str, target: str, *, replace: bool) -> None:
        # With an option, RENAME is rename2, which gives the reason of a failure; without, it answers false for every failure.
        option = "OVERWRITE" if replace else "NONE"
        try:
            self._fs._call("RENAME", method="put", path=source, destination=target, renameoptions=option)
        except RuntimeError as error:
            if not replace and self._fs.exists(target):
                raise FileExistsError(target) from error
            raise


class LibHdfsStore(HdfsStore):
    """HDFS through libhdfs, which has a rename that never overwrites."""

    def _rename(self, source: str, target: str, *, replace: bool) -> None:
        if replace and self._fs.exists(target):
            self._fs.rm(target)
        try:
            self._fs.mv(source, target)
        except OSError as error:
            if self._fs.exists(target):
                raise FileExistsError(target) from error
            raise


def _is_transient(error: Exception) -> bool:
    """Whether an error is a lost connection, a timeout, or a response of 500 and above without the name node's reason."""
    from requests import ConnectionError as LostConnection
    from requests import HTTPError, Timeout

    if isinstance(error, HTTPError):
        return error.response is not None and error.response.status_code >= 500
    return isinstance(error, LostConnection | Timeout)


def _is_absent(error: Exception) -> bool:
    """Whether an error is a bare 404, the response of a name node to DELETE of a missing path."""
    from requests import HTTPError

    return isinstance(error, HTTPError) and error.response is not None and error.response.status_code == 404


def _seconds(changed: Any) -> float:
    """Seconds since 1970 of a modification time: a datetime, or WebHDFS' milliseconds. 0 where there is none."""
    if isinstance(changed, int | float):
        return changed / 1000
    return float(changed.timestamp()) if hasattr(changed, "timestamp") else 0.0
