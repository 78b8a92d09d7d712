"""Talks to the Hugging Face hub: what a repository holds, the bytes of a file, and errors in words.

The only module that touches ``huggingface_hub``. ``HF_ENDPOINT`` says where the hub is; the token comes from ``HF_TOKEN`` or
the file of ``hf auth login`` and never reaches a message.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from huggingface_hub import HfApi, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # documented there, but not in its __all__
    build_hf_headers,
    disable_progress_bars,
)

from lattice_hub.errors import PullError, UnreachableError
from lattice_hub.hub_selection import RemoteFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from huggingface_hub.hf_api import RepoSibling

log = logging.getLogger("lattice.hub")

_TIMEOUT_SECONDS = 30.0
_MAX_HTTP_BYTES = 50_000_000_000
_UNAUTHORIZED, _FORBIDDEN, _BUSY, _SERVER = 401, 403, 429, 500
_QUERY = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*")


class Hub:
    """One repository at one revision (branch, tag or commit; None is the default branch)."""

    def __init__(self, repository: str, revision: str | None) -> None:
        disable_progress_bars()
        # Its warnings hold URLs, which are signed; what matters arrives here as an exception.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        self._repository = repository
        self._revision = revision
        self._commit = ""

    def listing(self) -> tuple[str, tuple[RemoteFile, ...]]:
        """The commit that the revision stands for now, and all files of it. Raises ``PullError``."""
        with self._errors():
            found = HfApi().model_info(self._repository, revision=self._revision, files_metadata=True, timeout=_TIMEOUT_SECONDS)
            self._commit = found.sha or ""
            files = tuple(_remote_file(sibling) for sibling in found.siblings or ())
        if not self._commit:
            raise PullError(f"the hub at {_endpoint()} names no commit for {self._repository}: is it a hub?")
        return self._commit, files

    def download(self, file: RemoteFile, into: BinaryIO, start: int) -> None:
        """Write the bytes of ``file`` from ``start`` on to ``into``, which stands there. Raises ``PullError``."""
        if file.size > _MAX_HTTP_BYTES:
            limit = f"files above {_MAX_HTTP_BYTES} come in the hub's own protocol only"
            raise PullError(f"{file.name} has {file.size} bytes; {limit}, choose others with --include")
        url = hf_hub_url(self._repository, file.name, revision=self._commit)
        # Sizes and offsets are those of the file, so the transfer must not be compressed.
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        with self._errors():
            http_get(url, into, resume_size=start, headers=headers, expected_size=file.size)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (PullError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - the hub's library changes its HTTP library, and so its errors, by version
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> PullError:
        log.debug("%s", _without_secrets(repr(error)))
        name = self._repository + (f"@{self._revision}" if self._revision else "")
        if isinstance(error, OfflineModeIsEnabled):
            return UnreachableError(f"cannot pull {name}: HF_HUB_OFFLINE forbids the network")
        if isinstance(error, HFValidationError):
            return PullError(f"{name!r} is not a repository of the hub: write hf:ORG/NAME[@REVISION]")
        if isinstance(error, HfHubHTTPError) and error.response is not None:
            return PullError(self._refused(error, name, error.response.status_code))
        first = next(iter(_without_secrets(str(error)).splitlines()), "")
        what = f"{type(error).__name__}: {first}" if first else type(error).__name__
        kept = "what has arrived is kept, pull again to go on"
        return UnreachableError(f"the connection to the hub at {_endpoint()} failed for {name} ({what}); {kept}")

    def _refused(self, error: HfHubHTTPError, name: str, status: int) -> str:
        token = "the token in use has no access" if get_token() else "set HF_TOKEN"
        if isinstance(error, GatedRepoError):
            return f"{name} is gated ({status}): accept its licence on its page at the hub; {token}"
        if isinstance(error, RevisionNotFoundError):
            return f"{self._repository} has no revision {self._revision!r} ({status}): check the part after @"
        if isinstance(error, RepositoryNotFoundError) or status in {_UNAUTHORIZED, _FORBIDDEN}:
            return f"the hub shows no model {name} ({status}): check the name; if it is private or gated, {token}"
        return f"the hub at {_endpoint()} answered {status} for {name}{_advice(status)}"


def _remote_file(sibling: RepoSibling) -> RemoteFile:
    size = sibling.size if sibling.size is not None else -1
    if sibling.lfs is not None:
        return RemoteFile(sibling.rfilename, size, f"sha256:{sibling.lfs.sha256}")
    return RemoteFile(sibling.rfilename, size, f"git-sha1:{sibling.blob_id}")


def _advice(status: int) -> str:
    if status == _BUSY:
        return ": too many requests, wait a while or set HF_TOKEN; what has arrived is kept"
    if status >= _SERVER:
        return ": it has a problem of its own, pull again later; what has arrived is kept"
    return ""


def _endpoint() -> str:
    """``HF_ENDPOINT`` or the library's default, without credentials that stand in it."""
    return re.sub(r"//[^/@]*@", "//", constants.ENDPOINT)


def _without_secrets(text: str) -> str:
    """``text`` without the token, and without the queries of URLs, which are signatures."""
    token = get_token()
    if token:
        text = text.replace(token, "***")
    return _QUERY.sub(r"\1", text)
