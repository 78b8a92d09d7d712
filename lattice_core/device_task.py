"""A piece of work for the device thread between two steps, and the promise of its result. Knows no scheduler."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_core.errors import LatticeError
    from lattice_core.protocols import Model


@frozen(eq=False)
class DeviceTask:
    """``work`` gets the model; what it returns or raises goes into ``future``."""

    work: Callable[[Model], Any]
    future: Future[Any] = field(factory=Future)

    def run(self, model: Model) -> None:
        """Do it, on the device thread. Never raises."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.work(model)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whoever waits for the result gets it
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def refuse(self, error: LatticeError) -> None:
        """It will not be done."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)
