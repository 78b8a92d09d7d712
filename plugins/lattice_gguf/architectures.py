"""Model architectures: which blocks they are made of, under the names of ``general.architecture``.

Source: ``src/llama-arch.cpp`` and ``src/models/*.cpp`` (ggml project). Must not know how tensors are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from lattice_gguf import rules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lattice_gguf.metadata import Metadata
    from lattice_gguf.rules import Rule
    from lattice_gguf.sizes import Sizes

_IGNORED = frozenset({"rope_freqs.weight", "attn_rot_embd.weight"})
_FUSED = "ffn_gate_up_exps.weight"


@frozen(kw_only=True)
class Architecture:
    """One architecture. ``name`` also begins its metadata keys.

    ``delta_net`` is what most layers have in the place of ``attention``, empty where all attend. ``experts`` says that
    ``feed_forward`` holds stacks of experts, whose gate and up may also be one tensor.
    """

    name: str
    class_name: str
    model_type: str
    attention: tuple[Rule, ...]
    feed_forward: tuple[Rule, ...] = rules.FEED_FORWARD
    norms: tuple[Rule, ...] = rules.NORMS
    delta_net: tuple[Rule, ...] = ()
    experts: bool = False

    def rules(self, sizes: Sizes, names: Collection[str]) -> Iterator[Rule]:
        """The rules of all tensors; ``names`` are those of the file."""
        yield from rules.MODEL
        for layer, recurrent in enumerate(sizes.recurrent_layers):
            mixer = self.delta_net if recurrent else self.attention
            yield from self._layer(f"blk.{layer}.", f"model.layers.{layer}.", mixer, names)
        if sizes.prediction_head:
            prefix = f"blk.{sizes.layers}."
            yield from self._layer(prefix, "mtp.layers.0.", self.attention, names)
            yield from (rule.below(prefix, "mtp.") for rule in rules.PREDICTION_HEAD)

    def ignores(self, name: str) -> bool:
        """Whether the content of a tensor stands in the configuration or can be computed."""
        return name in _IGNORED or name.split(".", 2)[-1] in _IGNORED

    def _layer(self, gguf: str, name: str, mixer: tuple[Rule, ...], names: Collection[str]) -> Iterator[Rule]:
        feed_forward = self.feed_forward
        if self.experts and f"{gguf}{_FUSED}" in names:
            feed_forward = (*(rule for rule in feed_forward if rule not in rules.EXPERTS), *rules.FUSED_EXPERTS)
        for rule in (*self.norms, *mixer, *feed_forward):
            yield rule.below(gguf, name)


_KNOWN = (
    Architecture(
        name="llama",
        class_name="LlamaForCausalLM",
        model_type="llama",
        attention=rules.LLAMA_ATTENTION,
        feed_forward=rules.FEED_FORWARD + rules.FEED_FORWARD_BIASES,
    ),
    Architecture(
        name="qwen2",
        class_name="Qwen2ForCausalLM",
        model_type="qwen2",
        attention=rules.ATTENTION + rules.ATTENTION_BIASES,
    ),
    Architecture(
        name="qwen3",
        class_name="Qwen3ForCausalLM",
        model_type="qwen3",
        attention=rules.ATTENTION + rules.QUERY_KEY_NORMS,
    ),
    Architecture(
        name="qwen3moe",
        class_name="Qwen3MoeForCausalLM",
        model_type="qwen3_moe",
        attention=rules.ATTENTION + rules.QUERY_KEY_NORMS,
        feed_forward=rules.ROUTER + rules.EXPERTS,
        experts=True,
    ),
    Architecture(
        name="qwen35",
        class_name="Qwen3_5ForCausalLM",
        model_type="qwen3_5_text",
        attention=rules.GATED_ATTENTION,
        norms=rules.QWEN35_NORMS,
        delta_net=rules.DELTA_NET,
    ),
    Architecture(
        name="qwen35moe",
        class_name="Qwen3_5MoeForCausalLM",
        model_type="qwen3_5_moe_text",
        attention=rules.GATED_ATTENTION,
        feed_forward=rules.ROUTER + rules.EXPERTS + rules.SHARED_EXPERT,
        norms=rules.QWEN35_NORMS,
        delta_net=rules.DELTA_NET,
        experts=True,
    ),
)
ARCHITECTURES: Mapping[str, Architecture] = {architecture.name: architecture for architecture in _KNOWN}


def architecture_of(metadata: Metadata) -> Architecture:
    """The architecture that ``general.architecture`` names; an unknown one is an error that lists the known."""
    kind = metadata.text("general.type", default="model")
    if kind != "model":
        metadata.fail(f"is a GGUF file of type {kind!r}, not a model")
    name = metadata.text("general.architecture")
    if name not in ARCHITECTURES:
        metadata.fail(f"architecture {name!r} is not supported (supported: {', '.join(ARCHITECTURES)})")
    return ARCHITECTURES[name]
