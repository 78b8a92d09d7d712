"""The loader: opens the files of a safetensors model and puts together what they say.

Owns the order of the checks: configuration, files, index, packed weights, text. Everything that can be wrong with the files
is found here, before any weight is read; whether they fit an architecture is for the backend to say.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from lattice_core.untrusted_files import read_chat_template, read_settings
from lattice_safetensors.checkpoint import SafetensorsCheckpoint
from lattice_safetensors.configuration import quantization_of, read_config
from lattice_safetensors.model_files import CONFIG, INDEX, model_files
from lattice_safetensors.packed_weights import weights_of
from lattice_safetensors.quantization_record import QuantizationRecord
from lattice_safetensors.shard_index import open_weights

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from lattice_core.descriptors import Settings
    from lattice_core.protocols import AdapterCheckpoint
    from lattice_safetensors.packed_weights import Weight

_LOG = logging.getLogger("lattice.safetensors")


class SafetensorsLoader:
    """Implements ``protocols.Loader`` and ``protocols.AdapterLoader``. There are no settings."""

    def __init__(self, settings: Settings) -> None:
        del settings

    def open(self, path: Path) -> SafetensorsCheckpoint:
        """Open a model's directory, or one of its weight files. Raises ``ModelError`` that names the file and the cause."""
        files = model_files(path)
        directory = files.directory
        config = read_config(directory)
        if files.single is not None and (directory / INDEX).exists():
            _LOG.info("%s: %s is read, %s beside it is not", directory, files.single.name, INDEX)
        stored = open_weights(files)
        found = quantization_of(config, directory / CONFIG)
        weights = weights_of(stored, QuantizationRecord(found, directory / CONFIG) if found is not None else None)
        tokenizer_config = read_settings(directory / "tokenizer_config.json")
        return SafetensorsCheckpoint(
            path=directory,
            config=config,
            generation_config=read_settings(directory / "generation_config.json"),
            tokenizer_config=tokenizer_config,
            chat_template=read_chat_template(directory, tokenizer_config),
            format=f"safetensors {_format_name(weights.values())}",
            weights=weights,
        )

    def open_adapter(self, path: Path) -> AdapterCheckpoint:
        """Open the adapter at ``path``. Raises ``ModelError`` that names the file, the tensor and the cause."""
        from lattice_safetensors.adapter_loader import open_adapter  # noqa: PLC0415 - a model needs no adapter code

        return open_adapter(path)


def _format_name(weights: Collection[Weight]) -> str:
    """Widths of packed weights, else the dtypes of floating-point ones, those of most bytes first."""
    widths: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    for weight in weights:
        scheme, dtype = weight.spec.quantization, weight.spec.dtype
        if scheme is not None:
            widths[str(scheme.bits)] += weight.nbytes
        elif dtype.startswith(("F", "BF")):
            dtypes[dtype] += weight.nbytes
    if widths:
        return f"MLX {_listed(widths)}-bit"
    return _listed(dtypes) or "without weights"


def _listed(sizes: Counter[str]) -> str:
    return "/".join(name for name, _ in sizes.most_common())
