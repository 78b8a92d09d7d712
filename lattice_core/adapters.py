"""The adapters that are resident beside one model: their names, who uses them, and how much there may be.

A request takes a lease on its adapter and gives it back when it ends, so that unloading never takes an adapter from under a
row. Knows no file formats, no rows and no threads: opening and the work on the device are done by what it is given.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field, frozen

from lattice_core.adapter_names import NAME_RULE, is_adapter_name
from lattice_core.causes import cause_of
from lattice_core.errors import (
    AdapterError,
    AdapterLimitError,
    LatticeError,
    ModelError,
    RequestError,
    UnknownAdapterError,
    UnknownModelError,
    UnsupportedAdapterError,
)
from lattice_core.ledger import size_text
from lattice_core.protocols import AdapterModel
from lattice_core.types import AdapterInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from lattice_core.ledger import MemoryLedger
    from lattice_core.protocols import AdapterCheckpoint, Model
    from lattice_core.types import AdapterId

T = TypeVar("T")

_LOG = logging.getLogger("lattice.adapters")
_SHOWN = 80


@frozen
class AdapterLimits:
    """How many adapters may be resident, and how many bytes they may take together."""

    count: int = 32
    nbytes: int = 512 * 1024 * 1024


@frozen(eq=False)
class AdapterLease:
    """One request's hold on an adapter. ``fingerprint`` belongs into the key of everything that is computed with it."""

    id: AdapterId
    name: str
    fingerprint: str
    release: Callable[[], None] = field(repr=False)
    """Give it back; to be called once, from any thread."""


@frozen(eq=False)
class OpenedAdapter:
    """An opened adapter with what reading its files told."""

    checkpoint: AdapterCheckpoint
    format: str
    nbytes: int
    fingerprint: str

    @classmethod
    def of(cls, checkpoint: AdapterCheckpoint) -> OpenedAdapter:
        """Ask for everything that may mean reading: not to be done on the device thread."""
        try:
            return cls(checkpoint, checkpoint.format, checkpoint.nbytes, checkpoint.fingerprint)
        except BaseException:
            checkpoint.close()
            raise


@define(eq=False)
class _Resident:
    """``nbytes`` are those on the device."""

    id: AdapterId
    name: str
    format: str
    nbytes: int
    fingerprint: str
    default: bool
    leases: int = 0
    unloading: bool = False

    def info(self) -> AdapterInfo:
        return AdapterInfo(
            name=self.name,
            format=self.format,
            nbytes=self.nbytes,
            fingerprint=self.fingerprint,
            default=self.default,
            requests=self.leases,
            unloading=self.unloading,
        )


class Adapters:
    """All methods may be called from any thread; ``load`` and ``unload`` wait for the device thread."""

    def __init__(
        self,
        served: tuple[str, ...],
        limits: AdapterLimits,
        ledger: MemoryLedger,
        on_device: Callable[[Callable[[Model], Any]], Future[Any]],
    ) -> None:
        """``served`` are the names of the model, its id first. ``on_device(work)`` runs ``work(model)`` between steps."""
        self._served = served
        self._limits = limits
        self._ledger = ledger
        self._on_device = on_device
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._resident: dict[AdapterId, _Resident] = {}
        self._by_name: dict[str, _Resident] = {}
        self._loading: set[str] = set()

    # ------------------------------------------------------------------------------------ what is there

    def infos(self) -> tuple[AdapterInfo, ...]:
        """The resident ones, in the order in which they were loaded."""
        with self._lock:
            return tuple(entry.info() for entry in self._resident.values())

    @property
    def nbytes(self) -> int:
        """Bytes that all of them take."""
        with self._lock:
            return self._taken()

    def lease(self, model: str | None, adapter: str | None) -> AdapterLease | None:
        """The adapter of a request that names ``model`` and perhaps ``adapter``; None for the model alone.

        Raises ``UnknownModelError``, ``UnknownAdapterError``, or ``RequestError`` where the two name different adapters.
        """
        with self._lock:
            entry = self._chosen(model, adapter)
            if entry is None:
                return None
            entry.leases += 1
        return AdapterLease(entry.id, entry.name, entry.fingerprint, lambda: self._release(entry))

    def _chosen(self, model: str | None, adapter: str | None) -> _Resident | None:
        named = model is not None and model not in self._served
        if model is not None and named and model not in self._by_name:
            served = ", ".join([self._served[0], *self._by_name])
            raise UnknownModelError(f"the model {_shown(model)} is not served here; served: {served}", param="model")
        if adapter is None:
            if model is not None and named:
                return self._by_name[model]
            return next((entry for entry in self._by_name.values() if entry.default), None)
        if named and adapter != model:
            wanted = f"the adapter {_shown(adapter)}" if adapter else "no adapter"
            raise RequestError(
                f"`model` names the adapter {model!r} and `lora` wants {wanted}; let one of them say which", param="lora"
            )
        return self._named(adapter, "lora") if adapter else None

    def _named(self, name: str, param: str) -> _Resident:
        entry = self._by_name.get(name)
        if entry is None:
            loaded = ", ".join(self._by_name) or "none"
            raise UnknownAdapterError(f"no adapter {_shown(name)} is loaded; loaded: {loaded}", param=param)
        return entry

    # ------------------------------------------------------------------------------------ coming

    def load(self, name: str, open_adapter: Callable[[], OpenedAdapter], *, default: bool = False) -> AdapterInfo:
        """Make an adapter resident as ``name``; one at a time. Raises ``AdapterError`` and its kinds, nothing then loaded."""
        self._claim(name, default=default)
        try:
            with self._turn:
                opened = open_adapter()
                try:
                    entry = self._made_resident(name, opened, default=default)
                finally:
                    opened.checkpoint.close()
        except AdapterError:
            raise
        except ModelError as error:
            raise AdapterError(f"adapter {name!r}: {error.message}", detail=error.detail) from error
        finally:
            with self._lock:
                self._loading.discard(name)
        _LOG.info("adapter '%s' (%s, %s) is loaded", name, entry.format, size_text(entry.nbytes))
        return entry.info()

    def _claim(self, name: str, *, default: bool) -> None:
        if not is_adapter_name(name):
            raise AdapterError(f"{_shown(name)} cannot be the name of an adapter: {NAME_RULE}", param="id")
        with self._lock:
            if name in self._served:
                raise AdapterError(f"{name!r} is the name of the model itself; give the adapter another", param="id")
            if name in self._by_name or name in self._loading:
                raise AdapterError(f"an adapter {name!r} is loaded already; unload it first or give another name", param="id")
            if default and any(entry.default for entry in self._by_name.values()):
                raise AdapterError("another adapter serves by default; unload it first")
            if len(self._resident) + len(self._loading) >= self._limits.count:
                raise AdapterLimitError(
                    f"{self._limits.count} adapters are resident, as many as --max-resident-adapters allows; unload one first"
                )
            self._loading.add(name)

    def _made_resident(self, name: str, opened: OpenedAdapter, *, default: bool) -> _Resident:
        self._reserve(name, opened.nbytes)
        try:
            adopted: Future[_Resident] = self._on_device(lambda model: self._adopt(model, name, opened, default=default))
            return self._finished(adopted, name)
        except BaseException:
            self._ledger.free(opened.nbytes)
            raise

    def _adopt(self, model: Model, name: str, opened: OpenedAdapter, *, default: bool) -> _Resident:
        """On the device thread: load, and account for what it really takes."""
        if not isinstance(model, AdapterModel):
            raise UnsupportedAdapterError(
                f"adapter {name!r}: the model of this backend ({model.info.architecture}) takes no adapters; use --backend mlx"
            )
        made = model.load_adapter(opened.checkpoint)
        try:
            nbytes = model.adapter_bytes(made)
            if nbytes > opened.nbytes:
                self._reserve(name, nbytes - opened.nbytes, beside=opened.nbytes)
            else:
                self._ledger.free(opened.nbytes - nbytes)
        except BaseException:
            model.unload_adapter(made)
            raise
        entry = _Resident(made, name, opened.format, nbytes, opened.fingerprint, default)
        with self._lock:
            self._resident[made] = self._by_name[name] = entry
        return entry

    def _reserve(self, name: str, nbytes: int, *, beside: int = 0) -> None:
        """Room for ``nbytes`` more, where ``beside`` are reserved for this adapter already."""
        with self._lock:
            taken = self._taken()
        wanted = size_text(beside + nbytes)
        if taken + beside + nbytes > self._limits.nbytes:
            raise AdapterLimitError(
                f"adapter {name!r} takes {wanted}, and of the {size_text(self._limits.nbytes)} that"
                f" --max-resident-adapter-bytes allows {size_text(taken)} are taken; unload one or raise the limit"
            )
        if not self._ledger.reserve(nbytes):
            raise AdapterLimitError(
                f"adapter {name!r} takes {wanted}, and of the {size_text(self._ledger.limit or 0)} of memory"
                f" {size_text(self._ledger.reserved)} are reserved; unload one, wait for requests to end or raise --memory"
            )

    # ------------------------------------------------------------------------------------ going

    def unload(self, name: str) -> int:
        """Take ``name`` out of service; returns how many requests still use it. With 0 it is freed already."""
        with self._lock:
            entry = self._named(name, "id")
            del self._by_name[name]
            entry.unloading = True
            requests = entry.leases
        if requests == 0:
            self._finished(self._on_device(lambda model: self._free(model, entry)), name)
        return requests

    def _release(self, entry: _Resident) -> None:
        with self._lock:
            entry.leases -= 1
            last = entry.unloading and entry.leases == 0
        if not last:
            return
        try:
            self._on_device(lambda model: self._free(model, entry))
        except LatticeError:
            return  # the engine ends, and everything on the device with it

    def _free(self, model: Model, entry: _Resident) -> None:
        """On the device thread."""
        try:
            if isinstance(model, AdapterModel):
                model.unload_adapter(entry.id)
        except (Exception, SystemExit):  # noqa: BLE001  # it is out of service whatever the backend says of it
            _LOG.exception("freeing the adapter '%s' failed", entry.name)
        with self._lock:
            del self._resident[entry.id]
        self._ledger.free(entry.nbytes)
        _LOG.info("adapter '%s' is unloaded", entry.name)

    # ------------------------------------------------------------------------------------ inside

    def _taken(self) -> int:
        return sum(entry.nbytes for entry in self._resident.values())

    @staticmethod
    def _finished(future: Future[T], name: str) -> T:
        """What the device thread made; what a backend raises beside ``LatticeError`` becomes one line."""
        try:
            return future.result()
        except LatticeError:
            raise
        except (Exception, SystemExit) as error:
            raise AdapterError(f"adapter {name!r} could not be loaded: {cause_of(error)}") from error


def _shown(name: str) -> str:
    text = ascii(name)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
