"""The configuration of the language model inside a checkpoint's, which may nest it under ``text_config``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OUTER = ("architectures", "tie_word_embeddings", "eos_token_id", "dtype", "torch_dtype")
"""Fields of the outer level that win over the nested ones: the outer model is what the file was written from."""


def language_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The flat configuration of the language model. Raises ``ModelError`` where ``text_config`` is no mapping."""
    nested = config.get("text_config")
    if nested is None:
        return config
    if not hasattr(nested, "keys"):
        raise ModelError(f"config.text_config is {nested!r}: expected a mapping")
    return {**nested, **{name: config[name] for name in _OUTER if config.get(name) is not None}}
