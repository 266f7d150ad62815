"""A small model hub: a real HTTP server that speaks the part of the hub's API that huggingface_hub uses.

Models are files in memory, revisions are names of commits. `gated`, `cuts` and `swapped` are what goes wrong;
`asked` keeps each request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of-the-test"


@dataclass
class Commit:
    """A model at one commit: its files by name."""

    files: Mapping[str, bytes]

    @property
    def sha(self) -> str:
        text = "".join(f"{name} {hashlib.sha1(data).hexdigest()}\n" for name, data in self.files.items())
        return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class Hub:
    """The models: name → revision → commit. `gated` ones need the token of the test."""

    models: dict[str, dict[str, Commit]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    cuts: list[int] = field(
        default_factory=list
    )  # bytes after which an answer with weights ends, one for each
    swapped: Mapping[str, bytes] = field(default_factory=dict)  # other bytes under a name
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, Range
    url: str = ""

    def commit(self, model: str, revision: str) -> Commit | None:
        found = self.models.get(model, {})
        by_sha = {commit.sha: commit for commit in found.values()}
        return found.get(revision) or by_sha.get(revision)


def is_large(name: str) -> bool:
    return name.endswith(".safetensors")


def describe(name: str, data: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    found: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob}
    if is_large(name):
        sha256 = hashlib.sha256(data).hexdigest()
        found["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 134}
    return found


def etag_of(name: str, data: bytes) -> str:
    found = describe(name, data)
    return str(found["lfs"]["sha256"] if "lfs" in found else found["blobId"])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_HEAD(self) -> None:
        self._handle(body=False)

    def do_GET(self) -> None:
        self._handle(body=True)

    def _handle(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path, self.headers.get("Range") or ""))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            self._describe(found[1], found[2], found[3])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(found[1], found[2], found[3], body=body)
        else:
            self._refuse(404, "NotFound", "no such path")

    def _find(self, model: str, revision: str) -> Commit | None:
        """The commit, or None after a refusal was sent."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token != TOKEN and not token.startswith("hf_other"):
            self._refuse(401, None, "Invalid credentials in Authorization header")
            return None
        if model not in self.hub.models:
            # As the hub does: who has no token is not told what exists.
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
            return None
        commit = self.hub.commit(model, revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _describe(self, model: str, what: str, revision: str) -> None:
        commit = self._find(model, revision)
        if commit is None:
            return
        files = [describe(name, data) for name, data in commit.files.items()]
        if what == "tree":
            tree = [
                {
                    "type": "file",
                    "path": one["rfilename"],
                    "size": one["size"],
                    "oid": one["blobId"],
                    **(
                        {"lfs": {"oid": one["lfs"]["sha256"], "size": one["size"], "pointerSize": 134}}
                        if "lfs" in one
                        else {}
                    ),
                }
                for one in files
            ]
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
            return
        gated = "auto" if model in self.hub.gated else False
        facts = {"_id": "0" * 24, "id": model, "modelId": model, "sha": commit.sha, "private": False}
        facts |= {
            "gated": gated,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "siblings": files,
        }
        self._send(200, json.dumps(facts).encode(), {"Content-Type": "application/json"})

    def _file(self, model: str, revision: str, name: str, *, body: bool) -> None:
        commit = self._find(model, revision)
        if commit is None:
            return
        token = self.headers.get("Authorization") or ""
        if model in self.hub.gated and token != f"Bearer {TOKEN}":
            self._refuse(403 if token else 401, "GatedRepo", f"Access to model {model} is restricted")
            return
        if name not in commit.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        right = commit.files[name]
        data = self.hub.swapped.get(name, right)
        headers = {"ETag": f'"{etag_of(name, right)}"', "X-Repo-Commit": commit.sha, "Accept-Ranges": "bytes"}
        if is_large(name):
            headers |= {"X-Linked-Size": str(len(right)), "X-Linked-Etag": headers["ETag"]}
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        status = 200
        if begin:
            status, headers["Content-Range"] = 206, f"bytes {begin}-{len(data) - 1}/{len(data)}"
        cut = self.hub.cuts.pop(0) if body and is_large(name) and self.hub.cuts else None
        self._send(status, data[begin:], headers, body=body, cut_after=cut)

    def _refuse(self, status: int, code: str | None, message: str) -> None:
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self._send(status, json.dumps({"error": message}).encode(), headers, body=self.command == "GET")

    def _send(
        self,
        status: int,
        data: bytes,
        headers: Mapping[str, str],
        *,
        body: bool = True,
        cut_after: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data if cut_after is None else data[:cut_after])
        if cut_after is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(hub: Hub, address: str) -> Iterator[Hub]:
    """The hub on a free port of that address; `hub.url` is where."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer((address, 0), handler) as server:
        hub.url = f"http://{address}:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
