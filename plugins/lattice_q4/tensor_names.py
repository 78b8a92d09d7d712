"""The names of tensors whose file names are all that is known: the way back from ``mangled``.

Mangling loses which ``_`` was a ``.``, so the names that checkpoints of this field use are listed here and mangled themselves.
Sources: the module names of the Llama, Qwen2, Qwen3, Qwen3-Next and Qwen3.5 models in transformers, text, vision and MTP parts.
Must not know what a file holds.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product

from lattice_q4.khq4 import mangled

_NUMBER = re.compile(r"(?<=_)(?:0|[1-9][0-9]*)(?=_)")
_PLACE = "N"
_DECODERS = ("model.", "model.language_model.", "language_model.model.")
_HEADS = ("lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight")
_MTP = ("mtp.", "model.mtp.", "language_model.mtp.")
_TOWERS = ("model.visual.", "visual.")
_PARTS = (".weight", ".bias")

_LINEAR = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.qkv_proj")
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj", "gate_up_proj")
_EXPERT_LISTS = ("mlp.shared_expert.", "mlp.experts.N.", "mlp.switch_mlp.")
_NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
_DELTA_NET = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "in_proj_qkvz", "in_proj_ba", "conv1d", "norm", "out_proj")
_BLOCK = ("norm1", "norm2", "attn.qkv", "attn.proj", *(f"mlp.{name}" for name in ("linear_fc1", "linear_fc2", *_FEED_FORWARD)))
_MERGER = ("norm", "linear_fc1", "linear_fc2", "ln_q", "mlp.N")


def original_name(stem: str) -> str | None:
    """The name of the tensor whose file has this stem; None for a stem that no known name has."""
    numbers = _NUMBER.findall(stem)
    skeleton = known_names().get(_NUMBER.sub(_PLACE, stem))
    # A literal N stands where a number is due in a name that none has.
    if skeleton is None or skeleton.count(f".{_PLACE}.") != len(numbers):
        return None
    first, *rest = skeleton.split(f".{_PLACE}.")
    return first + "".join(f".{number}.{part}" for number, part in zip(numbers, rest, strict=True))


@cache
def known_names() -> dict[str, str]:
    """All names that can be told, with ``N`` for every number, by their mangled form."""
    layer = [*_layer(), *_experts()]
    decoder = ["embed_tokens.weight", "norm.weight", *(f"layers.N.{name}" for name in layer)]
    head = ["fc.weight", "norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", *decoder]
    names = [
        *_HEADS,
        *(prefix + name for prefix, name in product(_DECODERS, decoder)),
        *(prefix + name for prefix, name in product(_MTP, head)),
        *(prefix + name for prefix, name in product(_TOWERS, _tower())),
    ]
    return {mangled(name): name for name in names}


def _layer() -> list[str]:
    return [
        *(name + part for name, part in product((*_LINEAR, *(f"mlp.{name}" for name in _FEED_FORWARD)), _PARTS)),
        *(f"{name}.weight" for name in _NORMS),
        *(f"linear_attn.{name}.weight" for name in _DELTA_NET),
        "linear_attn.A_log",
        "linear_attn.dt_bias",
    ]


def _experts() -> list[str]:
    return [
        "mlp.gate.weight",
        "mlp.shared_expert_gate.weight",
        "mlp.experts.gate_up_proj",
        "mlp.experts.down_proj",
        *(f"{group}{name}.weight" for group, name in product(_EXPERT_LISTS, _FEED_FORWARD)),
    ]


def _tower() -> list[str]:
    mergers = ("merger.", "deepstack_merger_list.N.")
    modules = [
        "patch_embed.proj",
        *(f"blocks.N.{name}" for name in _BLOCK),
        *(merger + name for merger, name in product(mergers, _MERGER)),
    ]
    return ["pos_embed.weight", *(module + part for module, part in product(modules, _PARTS))]
