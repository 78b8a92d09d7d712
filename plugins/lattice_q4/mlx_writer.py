"""Writes a directory in MLX's affine format, as mlx-lm has it: packed words, scales and biases, in safetensors shards.

Qwen3.5 models take the conventions that mlx-lm gives them: nested names, a convolution with its channels last, norms that hold
``1 + w`` (kept in float32, in which nothing is lost), no vision tower and no prediction head. Experts become stacks.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from lattice_core.errors import ModelError
from lattice_q4.json_file import write_json
from lattice_q4.source_tensors import Outcome, Part, float32, parts_of, pieces, unfused, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from lattice_core.protocols import Checkpoint

BITS, GROUP_SIZES = (2, 3, 4, 5, 6, 8), (32, 64, 128)
_SHARD = 5 << 30
_WIDTH = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4}
_ROUTERS, _ROUTER_BITS, _ROUTER_GROUP = (".mlp.gate.weight", ".mlp.shared_expert_gate.weight"), 8, 64
_SHIFTED = ("input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight", "q_norm.weight", "k_norm.weight")


@frozen
class Output:
    """One tensor of the copy. ``bits`` 0: it stays as it is; ``shifted``: 1 is added, in float32."""

    name: str
    part: Part
    bits: int = 0
    group_size: int = 0
    shifted: bool = False

    @property
    def entries(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """What stands in the file: names, dtypes, shapes."""
        shape = self.part.shape
        if not self.bits:
            return [(self.name, "F32" if self.shifted else self.part.dtype, shape)]
        stem, groups = self.name.removesuffix(".weight"), (*shape[:-1], shape[-1] // self.group_size)
        words = (*shape[:-1], shape[-1] * self.bits // 32)
        return [
            (self.name, "U32", words),
            (f"{stem}.scales", self.part.dtype, groups),
            (f"{stem}.biases", self.part.dtype, groups),
        ]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return sum(prod(shape) * _WIDTH[dtype] for _, dtype, shape in self.entries)


def write_mlx(
    checkpoint: Checkpoint, target: Path, *, bits: int, group_size: int, report: Callable[[int, int], None]
) -> Outcome:
    """Write shards, index and ``config.json`` into ``target``; returns what is left out, and which matrices do not divide.

    ``report(done, total)`` counts values. Raises ``ModelError``.
    """
    parts, left_out = parts_of(checkpoint)
    outputs, dropped = _outputs(parts, checkpoint.config, bits, group_size)
    if not any(output.bits for output in outputs):
        raise ModelError(f"no matrix of this model divides into groups of {group_size}")
    shards = _shards(outputs)
    total, done = sum(output.part.size for output in outputs), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        report(done, total)

    placed: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        with (target / file).open("xb") as stream:
            starts = _write_header(stream, shard)
            for output in shard:
                _write(checkpoint, output, stream, starts, advance)
                placed |= {name: file for name, _, _ in output.entries}
    if len(shards) > 1:
        total_size = sum(output.nbytes for output in outputs)
        index = {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(placed.items()))}
        write_json(target / "model.safetensors.index.json", index)
    write_json(target / "config.json", _config(checkpoint.config, outputs, bits, group_size))
    kept = (output.name for output in outputs if not output.bits and _is_matrix(output.name, output.part))
    return Outcome((*left_out, *dropped), tuple(kept))


def _shards(outputs: list[Output]) -> list[list[Output]]:
    """In order, as many to a file as it may hold; a larger tensor has a file for itself."""
    shards: list[list[Output]] = [[]]
    held = 0
    for output in outputs:
        if shards[-1] and held + output.nbytes > _SHARD:
            shards.append([])
            held = 0
        shards[-1].append(output)
        held += output.nbytes
    return shards


def _outputs(parts: list[Part], config: Mapping[str, Any], bits: int, group_size: int) -> tuple[list[Output], list[str]]:
    hybrid = _is_hybrid(config)
    if not hybrid and any(".linear_attn." in part.name for part in parts):
        kind = config.get("model_type")
        raise ModelError(f"how MLX stores models of the type {kind!r} is not known here: quantise it with --format q4")
    converted = any(part.name.endswith("conv1d.weight") and part.shape[-1] == 1 for part in parts)
    outputs, dropped = [], []
    for fused in parts:
        if hybrid and fused.name.startswith(("mtp.", "model.mtp.", "language_model.mtp.")):
            dropped.append(fused.name)
            continue
        for part in unfused(fused) if fused.name.endswith((".mlp.experts.gate_up_proj", ".mlp.experts.down_proj")) else [fused]:
            name = _nested(part.name) if hybrid else part.name
            if hybrid and not converted and name.endswith("conv1d.weight"):
                channels, _, taps = part.shape
                outputs.append(Output(name, evolve(part, shape=(channels, taps, 1))))
                continue
            shifted = hybrid and not converted and name.endswith(_SHIFTED)
            chosen = _scheme(name, part, bits, group_size)
            outputs.append(Output(name, part, *chosen, shifted=shifted))
    return outputs, dropped


def _is_hybrid(config: Mapping[str, Any]) -> bool:
    return str(config.get("model_type", "")).startswith("qwen3_5")


def _nested(name: str) -> str:
    for prefix in ("model.language_model.", "language_model.model.", "model."):
        if name.startswith(prefix):
            return "language_model.model." + name[len(prefix) :]
    return "language_model.lm_head.weight" if name.endswith("lm_head.weight") else name


def _scheme(name: str, part: Part, bits: int, group_size: int) -> tuple[int, int]:
    """Bits and group size, or zeros for what stays."""
    if not _is_matrix(name, part):
        return 0, 0
    if name.endswith(_ROUTERS):
        bits, group_size = _ROUTER_BITS, _ROUTER_GROUP
    return (bits, group_size) if part.shape[-1] % group_size == 0 else (0, 0)


def _is_matrix(name: str, part: Part) -> bool:
    """Whether it is a linear module's, an embedding's or a stack's weight."""
    return name.endswith(".weight") and len(part.shape) > 1 and not name.endswith("conv1d.weight")


def _config(config: Mapping[str, Any], outputs: list[Output], bits: int, group_size: int) -> dict[str, Any]:
    made = dict(config)
    if _is_hybrid(config) and "text_config" not in made:
        moe = str(config["model_type"]).startswith("qwen3_5_moe")
        kind = "qwen3_5_moe" if moe else "qwen3_5"
        made = {
            "architectures": ["Qwen3_5MoeForConditionalGeneration" if moe else "Qwen3_5ForConditionalGeneration"],
            "model_type": kind,
            "text_config": dict(config),
            **{name: config[name] for name in ("tie_word_embeddings", "eos_token_id") if name in config},
        }
    scheme: dict[str, Any] = {"group_size": group_size, "bits": bits, "mode": "affine"}
    for output in outputs:
        if output.bits and (output.bits, output.group_size) != (bits, group_size):
            scheme[output.name.removesuffix(".weight")] = {"group_size": output.group_size, "bits": output.bits}
    return {**made, "quantization": scheme, "quantization_config": scheme}


def _write_header(stream: BinaryIO, shard: list[Output]) -> dict[str, int]:
    """Write the header of a safetensors file; returns where each tensor's bytes begin."""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    starts, at = {}, 0
    for output in shard:
        for name, dtype, shape in output.entries:
            nbytes = prod(shape) * _WIDTH[dtype]
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + nbytes]}
            starts[name] = at
            at += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    return {name: 8 + len(text) + start for name, start in starts.items()}


def _write(
    checkpoint: Checkpoint, output: Output, stream: BinaryIO, starts: dict[str, int], advance: Callable[[int], None]
) -> None:
    at = [starts[name] for name, _, _ in output.entries]
    if output.shifted:
        stream.seek(at[0])
        stream.write((whole(checkpoint, output.part) + np.float32(1)).astype("<f4").tobytes())
        advance(output.part.size)
        return
    for piece in pieces(checkpoint, output.part, output.part.shape[-1] if output.bits else 1):
        if not np.isfinite(float32(piece, output.part.dtype)).all():
            raise ModelError(f"{output.part.name} holds numbers that are not finite")
        written = _packed(piece, output) if output.bits else (piece,)
        for index, array in enumerate(written):
            stream.seek(at[index])
            stream.write(array.tobytes())
            at[index] += array.nbytes
        advance(len(piece))


def _packed(piece: np.ndarray, output: Output) -> tuple[np.ndarray, ...]:
    """Rows as words, scales and biases, in the dtype of the source (BF16 as its words)."""
    import mlx.core as mx  # noqa: PLC0415  only this format needs it

    rows = mx.array(piece.reshape(-1, output.part.shape[-1]))
    if output.part.dtype == "BF16":
        rows = rows.view(mx.bfloat16)
    packed = mx.quantize(rows, group_size=output.group_size, bits=output.bits)
    return tuple(np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array) for array in packed)
