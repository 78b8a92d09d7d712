"""A hub of the test suite on loopback: the three requests of the Hugging Face hub's API that a pull makes."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import unquote, urlsplit

from tests.hub.loopback import Loopback

COMMIT = "c" * 40


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubServer(Loopback):
    """``files`` are served as repository ``acme/tiny`` at ``commit``; names in ``large`` as Git LFS does, with SHA-256.

    ``refusal`` (status, headers) is answered to every request for the listing. ``redirect`` sends downloads to another
    server, ``whole`` ignores Range, ``cuts`` gives after how many bytes the next answers of files are cut off.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {
            "config.json": b'{"architectures": ["TinyForCausalLM"], "model_type": "tiny"}',
            "tokenizer.json": b"{}",
            "model.safetensors": tiny_safetensors(),
            "pytorch_model.bin": b"pickle",
            "modeling_tiny.py": b"raise SystemExit",
            "README.md": b"# tiny",
        }
        self.large = {"model.safetensors"}
        self.commit = COMMIT
        self.refusal: tuple[int, dict[str, str]] | None = None
        self.announced: dict[str, dict[str, object]] = {}
        self.redirect: str | None = None
        self.whole = False
        self.cuts: list[int] = []
        super().__init__()

    def answer(self, handler) -> None:
        parts = [unquote(part) for part in urlsplit(handler.path).path.strip("/").split("/")]
        if parts[:2] == ["api", "models"]:
            self._listing(handler, parts[2:])
        elif parts[:2] == ["acme", "tiny"] and parts[2] == "resolve" and "/".join(parts[4:]) in self.files:
            self._file(handler, "/".join(parts[4:]))
        else:
            self.send(handler, b"", status=404, headers={"X-Error-Code": "EntryNotFound"})

    def _listing(self, handler, parts: list[str]) -> None:
        revision = parts[3] if len(parts) > 3 else "main"
        if self.refusal is not None:
            self.send(handler, b'{"error": "no"}', status=self.refusal[0], headers=self.refusal[1])
        elif parts[:2] != ["acme", "tiny"]:
            self.send(handler, b"", status=404, headers={"X-Error-Code": "RepoNotFound"})
        elif revision not in {"main", "v1", self.commit}:
            self.send(handler, b"", status=404, headers={"X-Error-Code": "RevisionNotFound"})
        else:
            siblings = [self._sibling(name, content) for name, content in self.files.items()]
            body = {"_id": "1", "id": "acme/tiny", "modelId": "acme/tiny", "sha": self.commit, "siblings": siblings}
            self.send(handler, json.dumps(body).encode(), headers={"Content-Type": "application/json"})

    def _sibling(self, name: str, content: bytes) -> dict[str, object]:
        entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": git_sha1(content)}
        if name in self.large:
            entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return {**entry, **self.announced.get(name, {})}

    def _file(self, handler, name: str) -> None:
        content = self.files[name]
        if self.redirect is not None:
            self.send(handler, b"", status=302, headers={"Location": f"{self.redirect}/{name}?Signature=sealed"})
            return
        headers = {"ETag": f'"{git_sha1(content)}"', "X-Repo-Commit": self.commit, "Accept-Ranges": "bytes"}
        wanted = handler.headers.get("Range")
        cut = self.cuts.pop(0) if self.cuts else None
        if wanted is None or self.whole:
            self.send(handler, content, headers=headers, cut=cut)
            return
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send(handler, content[start:], status=206, headers=headers, cut=cut)

    def asked(self, name: str) -> list[dict[str, str]]:
        """The headers of the requests for the file ``name``."""
        return [
            headers for method, path, headers in self.requests if method == "GET" and path.split("?")[0].endswith(f"/{name}")
        ]


def tiny_safetensors(nbytes: int = 64) -> bytes:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [nbytes // 2], "data_offsets": [0, nbytes]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(nbytes)
