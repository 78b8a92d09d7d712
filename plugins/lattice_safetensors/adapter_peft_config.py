"""PEFT's ``adapter_config.json``: the scale and rank of each module, and what is refused because it is not plain LoRA.

Owns the meaning of PEFT's fields (``peft.LoraConfig``, version 0.21). Fields that only say how the adapter was trained, or
which modules it has, need nothing: the tensors say it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_safetensors.adapter_patterns import ModulePattern, PatternSyntaxError
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from lattice_safetensors.adapter_config import AdapterFields

_MAX_KEYS = 65_536
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
        ranks, alphas = config.fields("rank_pattern"), config.fields("alpha_pattern")
        self._ranks = _patterns(ranks, {key: ranks.rank(key) for key in ranks.values}) if ranks else []
        self._alphas = _patterns(alphas, {key: alphas.number(key) for key in alphas.values}) if alphas else []

    def scale(self, path: str, rank: int, tensor: str) -> float:
        """The module's alpha / rank, or alpha / sqrt(rank) (rsLoRA, Kalajdzievski, 2023, arXiv:2312.03732).

        Raises ``ModelError`` where ``rank``, that of ``tensor``, is not the one that the configuration gives ``path``.
        """
        expected = next((value for pattern, value in self._ranks if pattern.matches(path)), self._rank)
        if rank != expected:
            raise ModelError(f"{self._where}: gives {path} the rank {expected}, its tensor {shown(tensor)} has {rank}")
        alpha = next((value for pattern, value in self._alphas if pattern.matches(path)), self._alpha)
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
            raise ModelError(f"{config.where}: {name} is true: this kind of LoRA is not known here; {_MERGE}")
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


def _patterns(fields: AdapterFields, values: dict[str, Any]) -> list[tuple[ModulePattern, Any]]:
    if len(values) > _MAX_KEYS:
        raise ModelError(f"{fields.where} has {len(values)} keys; at most {_MAX_KEYS} are read")
    found = []
    for key, value in values.items():
        if value is None:
            raise ModelError(f"{fields.where}: {shown(key)} is null, a number is expected")
        try:
            found.append((ModulePattern(key), value))
        except PatternSyntaxError as error:
            raise ModelError(f"{fields.where}: the key {shown(key)} is no pattern that can be matched: {error}") from error
    return found
