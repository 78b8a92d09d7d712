"""Writes a KHQ4 directory: one file for each tensor, the index, and the configuration. Must not know where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_q4 import khq4
from lattice_q4.json_file import write_json
from lattice_q4.model_files import INDEX
from lattice_q4.source_tensors import Outcome, float32, parts_of, pieces, whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lattice_core.protocols import Checkpoint
    from lattice_q4.source_tensors import Part


def write_q4(checkpoint: Checkpoint, target: Path, report: Callable[[int, int], None]) -> Outcome:
    """Write all tensors, the index and ``config.json`` into ``target``; returns what is left out.

    ``report(done, total)`` counts values. Raises ``ModelError`` for values that the format cannot hold.
    """
    parts, left_out = parts_of(checkpoint)
    _refuse_converted(parts)
    total, done = sum(part.size for part in parts), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        report(done, total)

    entries: list[dict[str, Any]] = []
    for part in parts:
        packed = khq4.is_quantised(part.name)
        if packed is None:
            left_out.append(part.name)
            advance(part.size)
            continue
        file = khq4.mangled(part.name) + (".q4" if packed else ".f16")
        try:
            _write(checkpoint, part, target / file, advance, packed=packed)
        except ValueError as error:
            raise ModelError(f"{part.name}: {error}") from error
        entries.append({"name": part.name, "file": file, "quantized": packed, "shape": list(part.shape), "numel": part.size})
    write_json(target / INDEX, entries)
    write_json(target / "config.json", dict(checkpoint.config))
    return Outcome(tuple(left_out))


def _write(checkpoint: Checkpoint, part: Part, path: Path, advance: Callable[[int], None], *, packed: bool) -> None:
    with path.open("xb") as file:
        if packed:
            file.write(khq4.header(part.shape))
            for piece in pieces(checkpoint, part, khq4.BLOCK):
                file.write(khq4.encode_blocks(float32(piece, part.dtype)))
                advance(len(piece))
        else:
            file.write(khq4.f16_file(whole(checkpoint, part)))
            advance(part.size)


def _refuse_converted(parts: list[Part]) -> None:
    """What mlx-lm or a GGUF converter wrote has another convolution and other norms than a KHQ4 directory holds."""
    for part in parts:
        if part.name.endswith("linear_attn.conv1d.weight") and part.shape[-1] == 1:
            raise ModelError(
                f"{part.name} is {list(part.shape)}, as MLX and GGUF models have it: write q4 from the original model"
            )
