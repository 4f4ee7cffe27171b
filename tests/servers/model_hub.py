"""A server in the test's process with the part of the Hugging Face hub's API that uploads and downloads of models need, over real sockets.

It has the LFS protocol, for clients with `HF_HUB_DISABLE_XET=1`. Xet's own client, which others use, uploads to a folder (`xet`): what
arrives there is not read back. Of the hub's rules for model cards it has those that `faults_of_card` names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_test0123456789abcdef"
OWNER = "acme"
_ID = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+", re.ASCII)
_LFS = (".safetensors", ".bin", ".gguf", "tokenizer.json")


@dataclass
class Repository:
    """Files of each branch: path -> SHA-256 of its content."""

    private: bool
    branches: dict[str, dict[str, str]] = field(default_factory=lambda: {"main": {}})
    commits: int = 0


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ModelHub:
    """A context. `blobs`: content by SHA-256. `puts`: hashes of uploaded objects, in order. `hold`: the number of the object whose upload
    waits until the server ends. `xet`: the folder of Xet's storage."""

    def __init__(self, hold: int | None = None, xet: Path | None = None) -> None:
        self.xet = xet
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.hold = hold
        self.held, self.released = threading.Event(), threading.Event()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

            def answer(self) -> None:
                try:
                    hub.answer(self)
                except Refused as error:
                    reply(self, {"error": str(error), "errors": [{"message": str(error)}]}, error.status)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="model-hub", daemon=True)

    def __enter__(self) -> ModelHub:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def files(self, repo: str, branch: str = "main") -> dict[str, bytes]:
        return {path: self.blobs[blob] for path, blob in self.repositories[repo].branches[branch].items()}

    # --- the server's threads ---------------------------------------------------------------------------------------------------------

    def answer(self, ask: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(ask.path).path)
        body = ask.rfile.read(int(ask.headers.get("Content-Length", 0))) if "Content-Length" in ask.headers else _chunked(ask)
        for pattern, verb, needs_token, action in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and ask.command in verb:
                if needs_token and ask.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise Refused(401, "Invalid username or password.")
                action(self, ask, body, **found.groupdict())
                return
        raise Refused(404, f"no such page: {ask.command} {path}")

    def repository(self, repo: str) -> Repository:
        if repo not in self.repositories:
            raise Refused(404, "Repository not found")
        return self.repositories[repo]

    def own(self, repo: str) -> Repository:
        if repo.partition("/")[0] != OWNER:
            raise Refused(403, f"You don't have the rights to write to {repo}")
        return self.repository(repo)

    def branch(self, repo: str, name: str) -> dict[str, str]:
        branches = self.repository(repo).branches
        if name not in branches and name != f"{self.repository(repo).commits:040x}":
            raise Refused(404, "Invalid rev id")
        return branches.get(name, branches["main"])

    def keep(self, content: bytes) -> str:
        mark = hashlib.sha256(content).hexdigest()
        self.blobs[mark] = content
        return mark


def check_card(_: ModelHub, ask: BaseHTTPRequestHandler, body: bytes) -> None:
    faults = faults_of_card(json.loads(body)["content"])
    reply(ask, {"errors": [{"message": fault} for fault in faults], "warnings": []}, 400 if faults else 200)


def faults_of_card(card: str) -> list[str]:
    """The hub's rules that are known here: the front matter is a mapping in YAML; `base_model` and `datasets` are ids of repositories;
    `tags` is a list of texts; `library_name` and `base_model_relation` are texts."""
    found = re.match(r"\A---\n(.*?\n)---\s*\n", card, re.DOTALL)
    data = yaml.safe_load(found[1]) if found else None
    if not isinstance(data, dict):
        return ["the metadata is no mapping"]
    faults = []
    for name in ("base_model", "datasets"):
        values = data.get(name, [])
        values = values if isinstance(values, list) else [values]
        faults += [f'"{name}" with value "{value}" is not valid. Use a model id' for value in values if not _ID.fullmatch(str(value))]
    tags = data.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        faults.append('"tags" must be a list of strings')
    relation = data.get("base_model_relation", "finetune")
    if relation not in ("adapter", "merge", "quantized", "finetune"):
        faults.append(f'"base_model_relation" must not be {relation}')
    if not isinstance(data.get("library_name", ""), str):
        faults.append('"library_name" must be a string')
    return faults


def create(hub: ModelHub, ask: BaseHTTPRequestHandler, body: bytes) -> None:
    asked = json.loads(body)
    repo = f"{asked['organization'] or OWNER}/{asked['name']}"
    if repo.partition("/")[0] != OWNER:
        raise Refused(403, f'You don\'t have the rights to create a model under the namespace "{asked["organization"]}"')
    there = repo in hub.repositories
    if not there:
        hub.repositories[repo] = Repository(private=asked.get("visibility") == "private")
    reply(ask, {"url": f"{hub.url}/{repo}"}, 409 if there else 200)


def describe(hub: ModelHub, ask: BaseHTTPRequestHandler, _: bytes, repo: str, rev: str | None = None) -> None:
    files = hub.branch(repo, rev or "main")
    found = hub.repository(repo)
    siblings = [
        {"rfilename": path, **({"lfs": {"sha256": blob, "size": len(hub.blobs[blob]), "pointerSize": 134}} if _is_lfs(path) else {})}
        for path, blob in files.items()
    ]
    reply(ask, {"id": repo, "sha": f"{found.commits:040x}", "private": found.private, "siblings": siblings, "tags": [], "downloads": 0})


def create_branch(hub: ModelHub, ask: BaseHTTPRequestHandler, _: bytes, repo: str, rev: str) -> None:
    branches = hub.own(repo).branches
    there = rev in branches
    branches.setdefault(rev, dict(branches["main"]))
    reply(ask, {}, 409 if there else 200)


def preupload(hub: ModelHub, ask: BaseHTTPRequestHandler, body: bytes, repo: str, rev: str) -> None:
    hub.own(repo)
    there = hub.branch(repo, rev)
    modes = []
    for file in json.loads(body)["files"]:
        path, is_lfs = file["path"], _is_lfs(file["path"])
        blob = there.get(path)
        oid = None if blob is None else blob if is_lfs else _git_hash(hub.blobs[blob])
        modes.append({"path": path, "uploadMode": "lfs" if is_lfs else "regular", "shouldIgnore": False, "oid": oid})
    reply(ask, {"files": modes})


def batch(hub: ModelHub, ask: BaseHTTPRequestHandler, body: bytes, repo: str) -> None:
    hub.own(repo)
    objects = []
    for each in json.loads(body)["objects"]:
        upload = {} if each["oid"] in hub.blobs else {"actions": {"upload": {"href": f"{hub.url}/lfs/{each['oid']}"}}}
        objects.append({"oid": each["oid"], "size": each["size"], **upload})
    reply(ask, {"transfer": "basic", "objects": objects})


def put(hub: ModelHub, ask: BaseHTTPRequestHandler, body: bytes, oid: str) -> None:
    if hub.hold is not None and len(hub.puts) == hub.hold:
        hub.held.set()
        hub.released.wait(600)
        ask.close_connection = True
        return
    if hashlib.sha256(body).hexdigest() != oid:
        raise Refused(400, "the content has another hash")
    hub.puts.append(hub.keep(body))
    reply(ask, {})


def xet_token(hub: ModelHub, ask: BaseHTTPRequestHandler, _: bytes, repo: str, **__: str) -> None:
    hub.own(repo)
    if hub.xet is None:
        raise Refused(404, "no Xet here")
    told = {"X-Xet-Cas-Url": f"local://{hub.xet}", "X-Xet-Access-Token": "any", "X-Xet-Token-Expiration": str(2**33)}
    data = json.dumps({"casUrl": told["X-Xet-Cas-Url"], "accessToken": "any", "exp": 2**33}).encode()
    ask.send_response(200)
    for name, value in {**told, "Content-Type": "application/json", "Content-Length": str(len(data))}.items():
        ask.send_header(name, value)
    ask.end_headers()
    ask.wfile.write(data)


def commit(hub: ModelHub, ask: BaseHTTPRequestHandler, body: bytes, repo: str, rev: str) -> None:
    found, files = hub.own(repo), dict(hub.branch(repo, rev))
    for line in body.splitlines():
        value, key = json.loads(line)["value"], json.loads(line)["key"]
        if key == "file":
            files[value["path"]] = hub.keep(base64.b64decode(value["content"]))
        elif key == "lfsFile":
            if hub.xet is not None:
                hub.blobs.setdefault(value["oid"], b"")
            if value["oid"] not in hub.blobs:
                raise Refused(400, f"{value['path']} was not uploaded")
            files[value["path"]] = value["oid"]
        elif key == "deletedFile":
            del files[value["path"]]
        elif key != "header":
            raise Refused(400, f"unknown operation {key}")
    found.branches[rev] = files
    found.commits += 1
    reply(ask, {"commitOid": f"{found.commits:040x}", "commitUrl": f"{hub.url}/{repo}/commit/{found.commits:040x}", "success": True})


def tree(hub: ModelHub, ask: BaseHTTPRequestHandler, _: bytes, repo: str, rev: str, folder: str = "") -> None:
    below = {path: blob for path, blob in hub.branch(repo, rev).items() if path.startswith(folder)}
    if folder and not below:
        raise Refused(404, "no such folder")
    reply(ask, [{"type": "file", "path": path, "size": len(hub.blobs[blob]), "oid": blob[:40]} for path, blob in below.items()])


def resolve(hub: ModelHub, ask: BaseHTTPRequestHandler, _: bytes, repo: str, rev: str, path: str) -> None:
    files = hub.branch(repo, rev)
    if path not in files:
        ask.send_response(404)
        ask.send_header("X-Error-Code", "EntryNotFound")
        ask.send_header("X-Repo-Commit", f"{hub.repository(repo).commits:040x}")
        ask.send_header("Content-Length", "0")
        ask.end_headers()
        return
    content = hub.blobs[files[path]]
    ask.send_response(200)
    ask.send_header("X-Repo-Commit", f"{hub.repository(repo).commits:040x}")
    ask.send_header("ETag", f'"{files[path]}"')
    ask.send_header("Content-Length", str(len(content)))
    ask.end_headers()
    if ask.command == "GET":
        ask.wfile.write(content)


Action = Callable[..., None]
_REPO, _REV = r"(?P<repo>[\w.-]+/[\w.-]+)", r"(?P<rev>[^/]+)"
ROUTES: tuple[tuple[str, tuple[str, ...], bool, Action], ...] = (
    (r"/api/validate-yaml", ("POST",), False, check_card),
    (r"/api/repos/create", ("POST",), True, create),
    (rf"/api/models/{_REPO}/branch/{_REV}", ("POST",), True, create_branch),
    (rf"/api/models/{_REPO}/preupload/{_REV}", ("POST",), True, preupload),
    (rf"/api/models/{_REPO}/xet-write-token/{_REV}", ("GET",), True, xet_token),
    (rf"/api/models/{_REPO}/commit/{_REV}", ("POST",), True, commit),
    (rf"/api/models/{_REPO}/tree/{_REV}", ("GET",), False, tree),
    (rf"/api/models/{_REPO}/tree/{_REV}/(?P<folder>.+)", ("GET",), False, tree),
    (rf"/api/models/{_REPO}/revision/{_REV}", ("GET",), False, describe),
    (rf"/api/models/{_REPO}", ("GET",), False, describe),
    (rf"/{_REPO}\.git/info/lfs/objects/batch", ("POST",), True, batch),
    (r"/lfs/(?P<oid>[0-9a-f]{64})", ("PUT",), False, put),
    (rf"/{_REPO}/resolve/{_REV}/(?P<path>.+)", ("GET", "HEAD"), False, resolve),
)


def reply(ask: BaseHTTPRequestHandler, body: Any, status: int = HTTPStatus.OK) -> None:
    data = json.dumps(body).encode()
    ask.send_response(status)
    ask.send_header("Content-Type", "application/json")
    if isinstance(body, dict) and "error" in body:
        ask.send_header("X-Error-Message", body["error"])
        if body["error"] == "Repository not found":
            ask.send_header("X-Error-Code", "RepoNotFound")
    ask.send_header("Content-Length", str(len(data)))
    ask.end_headers()
    if ask.command != "HEAD":
        ask.wfile.write(data)


def _chunked(ask: BaseHTTPRequestHandler) -> bytes:
    """The body of a request in chunks, as the client sends streams; empty for a request without a body."""
    if ask.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return b""
    parts = []
    while size := int(ask.rfile.readline().split(b";")[0], 16):
        parts.append(ask.rfile.read(size))
        ask.rfile.readline()
    ask.rfile.readline()
    return b"".join(parts)


def _is_lfs(path: str) -> bool:
    return path.endswith(_LFS)


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
