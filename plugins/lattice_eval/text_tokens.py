"""The text of a measurement: read from a file, as tokens. Knows the tokenizer; knows no model.

Text is text: a literal such as ``<|im_start|>`` in it is not that token.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.tokenizer import Tokenizer


@frozen
class TextTokens:
    """The ids of a text. ``bos`` is the beginning-of-sequence id that stands first, where the tokenizer wants one."""

    ids: tuple[int, ...]
    bos: int | None


def read_text(name: str) -> str:
    """The text of a file in UTF-8, ``-`` is standard input. Raises ``UsageError``, which names the first wrong byte."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"--text {name} cannot be read: {error.strerror or error}") from error
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = raw[error.start]
        raise UsageError(f"--text {name}: byte {error.start} (0x{wrong:02x}) is not UTF-8; convert the file first") from error


def tokenize(text: str, tokenizer: Tokenizer, config: Mapping[str, Any]) -> TextTokens:
    """The ids of ``text``, after a beginning-of-sequence token if the tokenizer adds one.

    ``config`` is ``tokenizer_config.json``: ``add_bos_token`` decides; without it the post-processor of ``tokenizer.json``
    does. Raises ``ModelError`` where one is asked for and none is named.
    """
    bos = _bos(tokenizer, config)
    ids = tokenizer.encode(text, control=False)
    return TextTokens(ids if bos is None else (bos, *ids), bos)


def _bos(tokenizer: Tokenizer, config: Mapping[str, Any]) -> int | None:
    named = tokenizer.special_tokens.get("bos_token")
    bos = None if named is None else tokenizer.token_id(named)
    wanted = config.get("add_bos_token")
    if wanted is None:
        return bos if bos is not None and tokenizer.encode("", control=True)[:1] == (bos,) else None
    if wanted and bos is None:
        raise ModelError(
            f"tokenizer_config.json asks for add_bos_token, but bos_token {named!r} is no token: correct one of the two"
        )
    return bos if wanted else None
