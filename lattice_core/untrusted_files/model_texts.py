"""The text that lies beside the weights: tokenizer, its settings and the chat template.

Owns the places where a chat template may stand and their order, which is that of transformers. Renders and tokenizes nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.untrusted_files.bounded_json import read_object
from lattice_core.untrusted_files.regular_file import is_there, read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOG = logging.getLogger("lattice.loaders")
_MAX_TOKENIZER = 256 << 20
_MAX_TEMPLATE = _MAX_SETTINGS = 8 << 20
_FIELD = "chat_template"


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object that may be missing, such as ``generation_config.json``: empty then. Raises ``ModelError``."""
    return read_object(path, limit=_MAX_SETTINGS) if is_there(path) else {}


def read_tokenizer(directory: Path) -> bytes:
    """``tokenizer.json``. Raises ``ModelError`` with the way out where it is missing."""
    path = directory / "tokenizer.json"
    if not is_there(path):
        raise ModelError(f"{directory}: tokenizer.json is missing; get it too, or name another one by --tokenizer-dir")
    return read_regular(path, _MAX_TOKENIZER)


def read_chat_template(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """The template of ``chat_template.jinja``, else of ``chat_template.json``, else of ``tokenizer_config.json``.

    Raises ``ModelError`` for one that is no text.
    """
    alone = directory / "chat_template.jinja"
    if is_there(alone):
        try:
            return read_regular(alone, _MAX_TEMPLATE).decode("utf-8") or None
        except UnicodeDecodeError as error:
            raise ModelError(f"{alone}: is not UTF-8 at byte {error.start}") from error
    wrapped = directory / "chat_template.json"
    found = read_settings(wrapped).get(_FIELD)
    if found is not None:
        return _default_of(found, wrapped)
    return _default_of(tokenizer_config.get(_FIELD), directory / "tokenizer_config.json")


def _default_of(found: Any, path: Path) -> str | None:
    """A template itself, or the one that is named ``default`` among several."""
    if isinstance(found, list):
        if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in found):
            raise ModelError(f"{path}: {_FIELD} is a list of something else than templates with a name")
        found = {entry["name"]: entry.get("template") for entry in found}
    if isinstance(found, dict):
        if "default" not in found:
            _LOG.warning("%s: none of the chat templates (%s) is named default: none is used", path, ", ".join(found))
            return None
        found = found["default"]
    if found is not None and not isinstance(found, str):
        raise ModelError(f"{path}: {_FIELD} is neither a text nor a list of named ones")
    return found or None
