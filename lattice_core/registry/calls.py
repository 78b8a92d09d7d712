"""Calls into a plugin's part, with its errors attributed to it.

``LatticeError`` is the part's own wording and passes as it is; anything else becomes a ``PluginError`` that names the part,
its plugin and distribution, what was called, and the cause.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lattice_core.causes import cause_of
from lattice_core.descriptors import resolve
from lattice_core.errors import LatticeError, PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lattice_core.registry.registration import Registration


@contextmanager
def attributed(registration: Registration, action: str) -> Iterator[None]:
    """Within it, whatever foreign code raises leaves as a ``LatticeError`` that says whose it is."""
    try:
        yield
    except (LatticeError, KeyboardInterrupt, GeneratorExit, BrokenPipeError):
        # A broken pipe is mostly our own stdout, which is for the process to judge.
        raise
    except BaseException as error:
        # SystemExit too: a part may not end the process.
        msg = f"{registration.label}: {action} failed: {cause_of(error)}"
        raise PluginError(msg) from error


def call(registration: Registration, target: Callable[..., Any] | str, what: str, *args: Any) -> Any:
    """Resolve ``target`` (a callable or a dotted path) and call it, attributed to ``registration`` as its ``what``."""
    with attributed(registration, f"{what} {_name_of(target)}"):
        return resolve(target)(*args)


def make(registration: Registration, *args: Any) -> Any:
    """The product of the registered factory. Raises ``PluginError`` for anything that is not a ``LatticeError``."""
    return call(registration, registration.spec.factory, "factory", *args)


def _name_of(target: Callable[..., Any] | str) -> str:
    if isinstance(target, str):
        return target
    return f"{getattr(target, '__module__', '?')}:{getattr(target, '__qualname__', type(target).__name__)}"
