"""The names of adapters: what may be one, and how ``--lora`` says it. Knows no model and no file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

NAME_RULE = "letters, digits, '.', '_' and '-', the first a letter or digit, at most 128"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@frozen
class AdapterOption:
    """One value of ``--lora``. ``default``: it was given without a name, and serves the requests that name the model itself."""

    name: str
    path: Path
    default: bool = False


def is_adapter_name(name: str) -> bool:
    """Whether ``name`` may stand in a request."""
    return _NAME.fullmatch(name) is not None


def names_adapter(text: str) -> bool:
    """Whether a value of ``--lora`` is ``NAME=PATH``: an ``=`` stands in it before any ``/``."""
    return "=" in text.partition("/")[0]


def read_adapter_options(texts: Iterable[str], taken: Container[str]) -> tuple[AdapterOption, ...]:
    """The adapters of ``--lora NAME=PATH`` and ``--lora PATH``. ``taken`` are the names of the model itself.

    One without a name is called after its path: the last component, without the ending, what may not stand in a name
    replaced by ``-``. Raises ``UsageError`` for a name that is wrong or taken, and for a second one without a name.
    """
    named: dict[str, AdapterOption] = {}
    unnamed: list[str] = []
    for text in texts:
        if not names_adapter(text):
            unnamed.append(text)
            continue
        name, _, path = text.partition("=")
        if not is_adapter_name(name):
            raise UsageError(f"--lora {text}: {name!r} is no name ({NAME_RULE}); write ./{text} if it is a path", param="lora")
        if name in taken:
            raise UsageError(f"--lora {text}: {name!r} is the name of the model itself; give another", param="lora")
        if name in named:
            raise UsageError(f"--lora {text}: another --lora has the name {name!r}; give another", param="lora")
        if not path:
            raise UsageError(f"--lora {text}: no path follows the name", param="lora")
        named[name] = AdapterOption(name, Path(path).expanduser())
    if len(unnamed) > 1:
        raise UsageError(
            f"--lora {unnamed[0]} and --lora {unnamed[1]} both have no name, and only one can serve by default;"
            " write --lora NAME=PATH",
            param="lora",
        )
    for text in unnamed:
        name = _name_of(text)
        while name in taken or name in named:
            name += "-lora"
        named[name] = AdapterOption(name, Path(text).expanduser(), default=True)
    return tuple(named.values())


def _name_of(text: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(text).stem).strip(".-_")
    return stem[:100] or "adapter"
