"""What a quantised copy is made of: the language model's tensors of an opened checkpoint, as flat runs of float values.

Owns which tensors are taken, what becomes of the output head of a tied model, how experts that are stored one by one or fused
become the stacks of the target, and reading in pieces of bounded size. Must not know how anything is written.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import TensorSpec

PIECE = 1 << 22
"""Values that are held at a time: 16 MiB of float32."""

_TOWERS = ("model.visual.", "visual.", "vision_tower.", "model.vision_tower.")
_RECOMPUTED = "rotary_emb.inv_freq"
_TIED = "tie_word_embeddings"
_SINGLE = re.compile(r"(?P<block>.*mlp\.)experts\.(?P<expert>\d+)\.(?P<kind>gate|up|down)_proj\.weight")
_KINDS: dict[str, Any] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@frozen
class Run:
    """Values ``[start, stop)`` of a stored tensor, flattened."""

    stored: str
    start: int
    stop: int


@frozen
class Part:
    """One tensor of the copy: its name, shape, the dtype it is stored in at the source, and where its values come from."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    runs: tuple[Run, ...]

    @property
    def size(self) -> int:
        """Number of values."""
        return prod(self.shape)


@frozen
class Outcome:
    """Names of tensors that a copy lacks, and of matrices that are in it as they were."""

    left_out: tuple[str, ...]
    kept: tuple[str, ...] = ()


def parts_of(checkpoint: Checkpoint) -> tuple[list[Part], list[str]]:
    """The parts of the language model with fused experts, and the names of tensors that are left out.

    Experts of single tensors become ``experts.gate_up_proj`` [experts, 2 * inner, hidden] (gate rows first) and
    ``experts.down_proj``. A tied model's copy of its embedding is left out. Raises ``ModelError`` for a source that is
    quantised or holds what is no float, and for an output head that contradicts the configuration.
    """
    parts: list[Part] = []
    left_out: list[str] = []
    singles: dict[str, dict[tuple[int, str], TensorSpec]] = {}
    for name, spec in checkpoint.tensors().items():
        if name.startswith(_TOWERS) or name.endswith(_RECOMPUTED):
            left_out.append(name)
            continue
        if spec.quantization is not None:
            raise ModelError(f"{name} is quantised already ({checkpoint.format}): quantise the original model")
        if spec.dtype not in _KINDS:
            raise ModelError(f"{name} is {spec.dtype}; only {', '.join(_KINDS)} can be quantised")
        single = _SINGLE.fullmatch(name)
        if single is None:
            parts.append(Part(name, spec.dtype, tuple(spec.shape), (Run(name, 0, prod(spec.shape)),)))
        else:
            singles.setdefault(single["block"], {})[int(single["expert"]), single["kind"]] = spec
    for block, experts in singles.items():
        parts += _fused(block, experts)
    copy = _head_to_drop(checkpoint, parts)
    return [part for part in parts if part is not copy], left_out + ([copy.name] if copy is not None else [])


def _head_to_drop(checkpoint: Checkpoint, parts: Sequence[Part]) -> Part | None:
    """The output head of a tied model, which must equal the embedding; an untied model must have one."""
    head, embedding = (
        next((part for part in parts if f".{part.name}".endswith(f".{name}") and "mtp" not in part.name.split(".")), None)
        for name in ("lm_head.weight", "embed_tokens.weight")
    )
    tied = _is_tied(checkpoint.config)
    if not tied and head is None:
        cause = "is not true, but the model holds no lm_head.weight"
        raise ModelError(f"tie_word_embeddings {cause}: get that tensor too, or set the flag if the embedding is the head")
    if not tied or head is None:
        return None
    if embedding is None or not _are_equal(checkpoint, head, embedding):
        cause = f"is true, but the model holds {head.name} with other numbers than the embedding"
        raise ModelError(f"tie_word_embeddings {cause}: correct config.json, or remove the tensor")
    return head


def _is_tied(config: Mapping[str, Any]) -> bool:
    nested = config.get("text_config")
    levels = (config, nested if isinstance(nested, dict) else {})
    return next((level[_TIED] for level in levels if level.get(_TIED) is not None), False) is True


def _are_equal(checkpoint: Checkpoint, one: Part, other: Part) -> bool:
    """Whether two parts hold the same numbers, compared piece by piece."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    pairs = zip(pieces(checkpoint, one, 1), pieces(checkpoint, other, 1), strict=True)
    return all(np.array_equal(*pair) for pair in pairs)


def _fused(block: str, experts: Mapping[tuple[int, str], TensorSpec]) -> list[Part]:
    count = 1 + max(expert for expert, _ in experts)
    made = []
    for name, kinds in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
        specs = [experts.get((expert, kind)) for expert in range(count) for kind in kinds]
        first = specs[0]
        if first is None or any(spec is None or spec.shape != first.shape or spec.dtype != first.dtype for spec in specs):
            raise ModelError(f"{block}experts: the {count} experts are not complete and of one shape and dtype")
        rows, width = first.shape
        runs = tuple(Run(spec.name, 0, prod(spec.shape)) for spec in specs if spec is not None)
        made.append(Part(f"{block}experts.{name}", first.dtype, (count, rows * len(kinds), width), runs))
    return made


def unfused(part: Part) -> list[Part]:
    """A fused ``experts.gate_up_proj`` or ``experts.down_proj`` as the stacks ``switch_mlp.*_proj.weight`` that MLX has."""
    block, _, name = part.name.rpartition("experts.")
    experts, rows, width = part.shape
    if name == "down_proj":
        return [Part(f"{block}switch_mlp.down_proj.weight", part.dtype, part.shape, part.runs)]
    inner = rows // 2
    half = inner * width
    made = []
    for place, kind in enumerate(("gate", "up")):
        runs = tuple(_within(part.runs, (2 * expert + place) * half, half) for expert in range(experts))
        made.append(Part(f"{block}switch_mlp.{kind}_proj.weight", part.dtype, (experts, inner, width), runs))
    return made


def _within(runs: Sequence[Run], start: int, count: int) -> Run:
    """The run that holds ``count`` values from ``start`` of all runs on."""
    for run in runs:
        length = run.stop - run.start
        if start < length:
            return Run(run.stored, run.start + start, run.start + start + count)
        start -= length
    raise ModelError("experts that are stored in unequal pieces cannot be taken apart")


def pieces(checkpoint: Checkpoint, part: Part, multiple: int) -> Iterator[np.ndarray]:
    """The values of a part, flat, in the dtype they are stored in (BF16 as its words), in order.

    Every piece has a multiple of ``multiple`` values save the last, and about ``PIECE`` at most.
    """
    at_once = max(multiple, PIECE // multiple * multiple)
    rest = np.empty(0, _KINDS[part.dtype])
    held, name = rest, None
    for run in part.runs:
        if run.stored != name:
            held, name = np.frombuffer(checkpoint.read(run.stored).data, _KINDS[part.dtype]), run.stored
        stored = held[run.start : run.stop]
        for start in range(0, len(stored), at_once):
            piece = stored[start : start + at_once]
            if len(rest):
                piece = np.concatenate([rest, piece])
            whole = len(piece) // multiple * multiple
            rest = piece[whole:].copy()
            if whole:
                yield piece[:whole]
    if len(rest):
        yield rest


def float32(values: np.ndarray, dtype: str) -> np.ndarray:
    """Stored values as float32."""
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def whole(checkpoint: Checkpoint, part: Part) -> np.ndarray:
    """All values of a part as float32, in its shape."""
    return np.concatenate([float32(piece, part.dtype) for piece in pieces(checkpoint, part, 1)]).reshape(part.shape)
