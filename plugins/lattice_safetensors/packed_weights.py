"""Which stored tensors make up one weight: a plain tensor stands for itself, packed words go with their scales and biases.

Owns MLX's naming (``X.weight`` U32, ``X.scales``, ``X.biases``) and the arithmetic that ties their shapes together, for
matrices and stacks of them: ``words * 32 = bits * groups * group_size``. Reads no bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.types import AffineQuantization, TensorSpec
from lattice_safetensors.dtypes import FLOATS
from lattice_safetensors.header import shown
from lattice_safetensors.quantization_record import BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_safetensors.container import SafetensorsFile, TensorInfo
    from lattice_safetensors.quantization_record import QuantizationRecord, Scheme

_WORD_BITS = 32
_WEIGHT, _SCALES, _BIASES = ".weight", ".scales", ".biases"


@frozen(eq=False)
class Part:
    """One stored tensor and the file that holds it."""

    file: SafetensorsFile
    info: TensorInfo


@frozen(eq=False)
class Weight:
    """What a checkpoint lists; ``parts`` are its data, and for a packed one its scales and biases."""

    spec: TensorSpec
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all parts as stored."""
        return sum(part.info.nbytes for part in self.parts)


def weights_of(files: Mapping[str, SafetensorsFile], record: QuantizationRecord | None) -> dict[str, Weight]:
    """All weights by name, from the file of every stored tensor. Raises ``ModelError`` that names file and tensor."""
    stored = {name: Part(file, file.tensors[name]) for name, file in files.items()}
    found: dict[str, Weight] = {}
    absorbed: set[str] = set()
    for name, part in stored.items():
        if part.info.dtype == "U32" and name.endswith(_WEIGHT):
            found[name] = _packed(part, stored, record)
            absorbed.update(_companions(name))
        else:
            found[name] = Weight(TensorSpec(name, part.info.dtype, part.info.shape), (part,))
    for name, part in stored.items():
        if name not in absorbed:
            _check_alone(part, stored, packed=record is not None)
    return {name: weight for name, weight in found.items() if name not in absorbed}


def _companions(name: str) -> tuple[str, str]:
    module = name.removesuffix(_WEIGHT)
    return module + _SCALES, module + _BIASES


def _packed(words: Part, stored: Mapping[str, Part], record: QuantizationRecord | None) -> Weight:
    info, what = words.info, f"{words.file.path}: tensor {shown(words.info.name)}"
    scales_name, biases_name = _companions(info.name)
    for companion in (scales_name, biases_name):
        if companion not in stored:
            raise ModelError(f"{what} is packed (U32), but {shown(companion)} is missing")
    if record is None:
        raise ModelError(f"{what} is packed (U32), but config.json has no 'quantization' that says how")
    scheme = record.scheme(info.name.removesuffix(_WEIGHT))
    if not scheme.quantised:
        raise ModelError(f"{what} is packed (U32), but config.json says that it is not quantised")
    scales, biases = stored[scales_name].info, stored[biases_name].info
    for part in (scales, biases):
        _check_scales(part, info, what)
    if scales.dtype != biases.dtype or scales.shape != biases.shape:
        described = f"{scales.dtype} {list(scales.shape)} and biases of {biases.dtype} {list(biases.shape)}"
        raise ModelError(f"{what} has scales of {described}, which must be alike")
    bits, columns = _bits(info.shape[-1], scales.shape[-1], scheme, what), scales.shape[-1] * scheme.group_size
    quantization = AffineQuantization(bits, scheme.group_size, scales.dtype)
    spec = TensorSpec(info.name, "U32", (*info.shape[:-1], columns), quantization)
    return Weight(spec, (words, stored[scales_name], stored[biases_name]))


def _bits(words: int, groups: int, scheme: Scheme, what: str) -> int:
    """The width of an element, as a row of packed words and its groups have it; a record of it must agree."""
    bits, rest = divmod(words * _WORD_BITS, groups * scheme.group_size)
    if bits not in BITS or rest:
        counted = f"{words} words for {groups} groups of {scheme.group_size}"
        raise ModelError(f"{what} has {counted}, which is no width of {', '.join(map(str, BITS))} bits")
    if scheme.bits not in (None, bits):
        said = f"{scheme.bits} bits in groups of {scheme.group_size}"
        raise ModelError(f"{what}: config.json says {said}, the shapes say {bits} bits")
    return bits


def _check_scales(part: TensorInfo, info: TensorInfo, what: str) -> None:
    if part.dtype not in FLOATS:
        raise ModelError(f"{what} has {shown(part.name)} of {part.dtype}; only {', '.join(sorted(FLOATS))} are read")
    fits = len(info.shape) >= 2 and part.shape[:-1] == info.shape[:-1]  # noqa: PLR2004 - a matrix, or a stack of them
    if not fits or 0 in info.shape or 0 in part.shape:
        raise ModelError(f"{what} {list(info.shape)} and {shown(part.name)} {list(part.shape)} do not fit together")


def _check_alone(part: Part, stored: Mapping[str, Part], *, packed: bool) -> None:
    """Refuse remains of a packed weight, and weights that are packed in another way; both would be taken for plain tensors."""
    name = part.info.name
    what = f"{part.file.path}: tensor {shown(name)}"
    if name.endswith(".qweight"):
        raise ModelError(f"{what} is packed as GPTQ or AWQ do it, which is not read; take the unquantised checkpoint")
    ending = next((ending for ending in (_SCALES, _BIASES) if name.endswith(ending)), None)
    if not packed or ending is None:
        return
    weight = name.removesuffix(ending) + _WEIGHT
    if weight not in stored:
        raise ModelError(f"{what} belongs to {shown(weight)}, which is missing")
    raise ModelError(f"{what} belongs to {shown(weight)}, which is {stored[weight].info.dtype} and not packed")
