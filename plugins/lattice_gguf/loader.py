"""The loader: opens the files of a GGUF model, translates the metadata and lists the tensors.

Owns the order of the checks: file, architecture, sizes, tensors, tokenizer. Everything that can be wrong with a file is
found here, before any weight is read.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lattice_core.errors import ModelError
from lattice_gguf.affine import AFFINE_TYPES, GROUP
from lattice_gguf.architectures import architecture_of
from lattice_gguf.checkpoint import GgufCheckpoint, Source, spec_of
from lattice_gguf.configuration import read_config
from lattice_gguf.container import GgufFile
from lattice_gguf.expand import EXPANDED_TYPES
from lattice_gguf.metadata import Metadata
from lattice_gguf.model_files import model_files
from lattice_gguf.rope import read_frequency_factors, read_rope
from lattice_gguf.sizes import read_sizes
from lattice_gguf.tensor_types import file_type_name
from lattice_gguf.tokenizer import read_tokenizer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from lattice_core.descriptors import Settings
    from lattice_gguf.architectures import Architecture
    from lattice_gguf.rules import Rule
    from lattice_gguf.sizes import Sizes
    from lattice_gguf.vocabulary import TokenList

_LOG = logging.getLogger("lattice.gguf")
_EMBEDDING, _FACTORS = "token_embd.weight", "rope_freqs.weight"
_SAMPLING = {"temp": "temperature", "top_p": "top_p", "penalty_repeat": "repetition_penalty"}
_WIDENED = frozenset(name for name, kind in AFFINE_TYPES.items() if kind.bits == 8) - {"Q8_0"}  # noqa: PLR2004 - bits of a byte


class GgufLoader:
    """Implements ``protocols.Loader``. There are no settings."""

    def __init__(self, settings: Settings) -> None:
        del settings

    def open(self, path: Path) -> GgufCheckpoint:
        """Open a ``.gguf`` file, the only GGUF model of a directory, or a model that is split into several files."""
        files = [GgufFile(file) for file in model_files(path)]
        metadata = Metadata(files[0].metadata, files[0].path)
        stored = _merged(files, metadata)
        architecture = architecture_of(metadata)
        if _EMBEDDING not in stored:
            metadata.fail(f"tensor {_EMBEDDING!r} is missing")
        sizes = read_sizes(metadata, architecture, stored[_EMBEDDING].info.shape[0], stored)
        sources = _mapped_tensors(stored, architecture, sizes, metadata)
        config = read_config(metadata, architecture, sizes, stored) | read_rope(metadata, architecture, sizes)
        if _FACTORS in stored:
            config["rope_freqs"] = read_frequency_factors(_float32(stored[_FACTORS]), sizes.rotary, metadata)
        tokenizer = read_tokenizer(metadata)
        if len(tokenizer.tokens.texts) > sizes.vocabulary:
            metadata.fail(f"{len(tokenizer.tokens.texts)} tokens, but embeddings for {sizes.vocabulary}")
        ids = _role_ids(tokenizer.tokens)
        _report(sources.values(), metadata)
        return GgufCheckpoint(
            path=files[0].path,
            config=config | ids | {"torch_dtype": _activation_dtype(sources.values())},
            generation_config=ids | _sampling(metadata),
            tokenizer_json=tokenizer.json,
            tokenizer_config=tokenizer.config,
            chat_template=metadata.optional_text("tokenizer.chat_template"),
            format=f"gguf {_format_name(metadata, sources.values())}",
            sources=sources,
        )


def _merged(files: list[GgufFile], metadata: Metadata) -> dict[str, Source]:
    """The tensors of all files by their names in the files."""
    count = metadata.integer("split.count", default=1) or 1
    if count != len(files):
        metadata.fail(f"is split into {count} files by its metadata, {len(files)} by its name; give it its name back")
    stored: dict[str, Source] = {}
    for number, file in enumerate(files):
        if Metadata(file.metadata, file.path).integer("split.no", default=number) != number:
            raise ModelError(f"{file.path}: is not file {number + 1} of {len(files)} as its name says")
        for name, info in file.tensors.items():
            if name in stored:
                raise ModelError(f"{file.path}: tensor {name!r} stands in another file of the model too")
            stored[name] = Source(file, info, info.shape)
    return stored


def _mapped_tensors(
    stored: Mapping[str, Source], architecture: Architecture, sizes: Sizes, metadata: Metadata
) -> dict[str, Source]:
    """Sources by name in Hugging Face notation; all must be there, have the right shape, and none may be left over."""
    left = {name for name in stored if not architecture.ignores(name)}
    sources: dict[str, Source] = {}
    for rule in architecture.rules(sizes, stored):
        if rule.gguf in stored:
            sources[rule.name] = _fitting(stored[rule.gguf], rule, sizes, metadata)
            left.discard(rule.gguf)
        elif not rule.optional:
            metadata.fail(f"tensor {rule.gguf!r} is missing")
    if left:
        metadata.fail(f"tensor {min(left)!r} is unknown to the architecture {architecture.name!r} ({len(left)} such tensors)")
    return sources


def _fitting(source: Source, rule: Rule, sizes: Sizes, metadata: Metadata) -> Source:
    """The source with what the rule asks for; the stored shape may lack or add dimensions of 1, as the format has it."""
    stored, shape = source.info.shape, sizes.shape(rule.shape)
    if [size for size in stored if size != 1] != [size for size in shape if size != 1]:
        metadata.fail(f"tensor {rule.gguf!r} has shape {list(stored)}, not {list(shape)}")
    regrouping = sizes.regrouping(rule.order)
    packed = source.info.type.name in AFFINE_TYPES
    if packed and regrouping is not None and regrouping.columns and not regrouping.divides_by(GROUP):
        cause = f"its columns move by {regrouping.unit}, which does not divide into the {GROUP} of a group"
        metadata.fail(f"tensor {rule.gguf!r} is {source.info.type.name}, but {cause}; use a file that keeps it in F16")
    if rule.decay:
        _check_float32(source)
    return Source(source.file, source.info, shape, regrouping, rule.decay)


def _float32(source: Source) -> np.ndarray:
    _check_float32(source)
    return np.frombuffer(source.file.read(source.info), "<f4").reshape(source.info.shape)


def _check_float32(source: Source) -> None:
    if source.info.type.name != "F32":
        raise ModelError(f"{source.file.path}: tensor {source.info.name!r} is {source.info.type.name}, not F32")


def _role_ids(tokens: TokenList) -> dict[str, Any]:
    ends = tokens.end_ids
    ids: dict[str, Any] = {"eos_token_id": ends[0] if len(ends) == 1 else ends} if ends else {}
    return ids | {f"{role}_token_id": tokens.roles[role] for role in ("bos", "pad") if role in tokens.roles}


def _sampling(metadata: Metadata) -> dict[str, Any]:
    """What the model's author recommends, where the file says it."""
    prefix = "general.sampling"
    found: dict[str, Any] = {
        field: metadata.number(f"{prefix}.{key}") for key, field in _SAMPLING.items() if f"{prefix}.{key}" in metadata
    }
    return found | ({"top_k": metadata.integer(f"{prefix}.top_k")} if f"{prefix}.top_k" in metadata else {})


def _bytes_by_type(sources: Collection[Source]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for source in sources:
        sizes[source.info.type.name] += source.info.nbytes
    return sizes


def _format_name(metadata: Metadata, sources: Collection[Source]) -> str:
    """The name of the file's type, or the type that most bytes have."""
    named = file_type_name(metadata.integer("general.file_type")) if "general.file_type" in metadata else None
    return named or _bytes_by_type(sources).most_common(1)[0][0]


def _activation_dtype(sources: Collection[Source]) -> str:
    """``torch_dtype``: that of the stored floats, float16 for quantised weights, whose scales are half precision."""
    most = _bytes_by_type(sources).most_common(1)[0][0]
    return {"F32": "float32", "BF16": "bfloat16"}.get(most, "float16")


def _report(sources: Collection[Source], metadata: Metadata) -> None:
    """One line about the tensors that take more room in memory than in the file."""
    kinds = Counter(source.info.type.name for source in sources)
    expanded = [f"{count} {name} to {spec_of(name)}" for name, count in kinds.items() if name in EXPANDED_TYPES]
    widened = [f"{count} {name} to 8 bits" for name, count in kinds.items() if name in _WIDENED]
    if expanded or widened:
        _LOG.info("%s: tensors expanded when they are read: %s", metadata.path, ", ".join(expanded + widened))
