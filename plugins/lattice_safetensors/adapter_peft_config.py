"""PEFT's ``adapter_config.json``: the scale and rank of each module, and what is refused because it is not plain LoRA.

Owns the meaning of PEFT's fields (``peft.LoraConfig``, version 0.21). Fields that only say how the adapter was trained, or
which modules it has, need nothing: the tensors say it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from lattice_core.errors import ModelError
from lattice_safetensors.adapter_config import AdapterFields, label
from lattice_safetensors.adapter_patterns import PatternSyntaxError, PatternTable
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Callable

_Value = TypeVar("_Value")
_MERGE = "merge the adapter into its base"
_FLAGS = {
    "use_dora": f"DoRA is not supported; {_MERGE}",
    "fan_in_fan_out": f"it is for layers with transposed weights, which no supported model has; {_MERGE}",
    "lora_bias": f"biases of LoRA factors are not supported; {_MERGE}",
    "use_qalora": f"QA-LoRA pools its inputs, which is not supported; {_MERGE}",
}
_SETTINGS = {
    "layer_replication": "a model with repeated layers is not supported",
    "trainable_token_indices": f"trained tokens of the embeddings are not supported; {_MERGE}",
    "target_parameters": f"adapters on parameters (of experts) are not supported; {_MERGE}",
    "megatron_config": "adapters of Megatron's parallel layers are not supported",
    "alora_invocation_tokens": "activated LoRA, which begins within a prompt, is not supported",
    "use_bdlora": f"block-diagonal factors are not supported; {_MERGE}",
    "arrow_config": "routing between adapters is not supported",
    "kasa_config": f"KaSA changes the base too, which is not supported; {_MERGE}",
    "monteclora_config": f"variational LoRA is not supported; {_MERGE}",
}
# These start from a part of the base's weights and take that part out of the base, so the factors alone are no difference to
# the base that is loaded here. PEFT writes true once it has converted an adapter at saving.
_TAKES_FROM_BASE = ("pissa", "olora", "corda", "lora_ga")
_LEAVES_BASE = frozenset(("gaussian", "eva", "orthogonal", "mica"))


class PeftScaling:
    """Scales by a PEFT configuration. Raises ``ModelError`` naming the field that is wrong or not supported."""

    def __init__(self, config: AdapterFields) -> None:
        self._where = config.where
        _refuse(config)
        self._rslora = config.flag("use_rslora")
        rank, alpha = config.rank("r"), config.number("lora_alpha")
        if rank is None or alpha is None:
            missing = "r" if rank is None else "lora_alpha"
            raise ModelError(f"{config.where}: {missing} is missing; without it the adapter's scale is unknown")
        self._rank, self._alpha = rank, alpha
        self._ranks = _table(config.fields("rank_pattern"), AdapterFields.rank)
        self._alphas = _table(config.fields("alpha_pattern"), AdapterFields.number)

    def scale(self, path: str, rank: int, tensor: str) -> float:
        """The module's alpha / rank, or alpha / sqrt(rank) (rsLoRA, Kalajdzievski, 2023, arXiv:2312.03732).

        Raises ``ModelError`` where ``rank``, that of ``tensor``, is not the one that the configuration gives ``path``.
        """
        try:
            expected = self._ranks.find(path) or self._rank
            alpha = self._alphas.find(path) or self._alpha
        except PatternSyntaxError as error:
            raise ModelError(f"{self._where}: rank_pattern or alpha_pattern: {error}") from error
        if rank != expected:
            raise ModelError(f"{self._where}: gives {shown(path)} the rank {expected}, its tensor {shown(tensor)} has {rank}")
        return alpha / math.sqrt(rank) if self._rslora else alpha / rank


def _refuse(config: AdapterFields) -> None:
    """Refuse what is not plain LoRA on linear modules of the base as it is."""
    kind = config.text("peft_type")
    if kind is None or kind.upper() != "LORA":
        raise ModelError(f"{config.where}: peft_type is {shown(str(kind))}; only LORA is supported")
    for name, why in _FLAGS.items():
        if config.flag(name):
            raise ModelError(f"{config.where}: {name} is true: {why}")
    for name, why in _SETTINGS.items():
        found = config.values.get(name)
        if found not in (None, False, [], {}):
            raise ModelError(f"{config.where}: {name} is {shown(str(found))}: {why}")
    for name, found in config.values.items():
        if name.startswith("use_") and name != "use_rslora" and found is True:
            raise ModelError(f"{config.where}: {label(name)} is true: this kind of LoRA is not known here; {_MERGE}")
    _check_start(config.values.get("init_lora_weights"), config)


def _check_start(found: Any, config: AdapterFields) -> None:
    """Refuse adapters that are a difference to another base than the checkpoint."""
    if found is None or isinstance(found, bool):
        return
    what = f"{config.where}: init_lora_weights is {shown(str(found))}"
    name = found.lower() if isinstance(found, str) else ""
    if name.startswith(_TAKES_FROM_BASE):
        raise ModelError(
            f"{what}: the adapter fits a base from which its start was taken away, not the checkpoint; save it again by"
            " save_pretrained(..., path_initial_model_for_weight_conversion=...)"
        )
    if name == "loftq":
        raise ModelError(f"{what}: the adapter corrects one quantised base, which is not supported; {_MERGE}")
    if name not in _LEAVES_BASE:
        raise ModelError(f"{what}, which is not known to leave the base as it is; {_MERGE}")


def _table(fields: AdapterFields | None, read: Callable[[AdapterFields, str], _Value | None]) -> PatternTable[_Value]:
    """The table of a ``*_pattern`` field, its values read by ``read``."""
    values: dict[str, _Value] = {}
    if fields is None:
        return PatternTable(values)
    for key in fields.values:
        value = read(fields, key)
        if value is None:
            raise ModelError(f"{fields.where}: {shown(key)} is null, a number is expected")
        values[key] = value
    try:
        return PatternTable(values)
    except PatternSyntaxError as error:
        raise ModelError(f"{fields.where}: {error}") from error
