"""Model architectures: the tensor names of GGUF translated into Hugging Face notation, with the shapes they must have.

Owns one table per architecture. Sources: the naming convention of the ggml project and the parameter names of the Hugging
Face model classes. Must not know how tensors are stored.

GGUF keeps the rows of ``attn_q`` and ``attn_k`` of the llama architecture interleaved: rows 2i and 2i + 1 of a head form
the pair that RoPE rotates. Hugging Face notation has row i of the head's first half and row i of its second half, so these
tensors are marked with the number of heads that they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lattice_gguf.metadata import Metadata


@frozen
class Rule:
    """One tensor: its name in the file and in Hugging Face notation, its shape in terms of ``configuration.Sizes``.

    ``interleaved`` names the size that counts the heads whose rows are interleaved.
    """

    gguf: str
    name: str
    shape: tuple[str, ...]
    optional: bool = False
    interleaved: str | None = None


@frozen
class Architecture:
    """One architecture. ``ignored`` are tensors whose content stands in the configuration or can be computed."""

    name: str
    class_name: str
    model_type: str
    model_rules: tuple[Rule, ...]
    layer_rules: tuple[Rule, ...]
    ignored: frozenset[str]

    def rules(self, layers: int) -> Iterator[Rule]:
        """The rules of all tensors of a model of so many layers."""
        yield from self.model_rules
        for layer in range(layers):
            for rule in self.layer_rules:
                gguf, name = f"blk.{layer}.{rule.gguf}", f"model.layers.{layer}.{rule.name}"
                yield Rule(gguf, name, rule.shape, rule.optional, rule.interleaved)

    def ignores(self, name: str) -> bool:
        """Whether a tensor of the file is not needed."""
        return name in self.ignored or name.split(".", 2)[-1] in self.ignored


_LLAMA = Architecture(
    name="llama",
    class_name="LlamaForCausalLM",
    model_type="llama",
    model_rules=(
        Rule("token_embd.weight", "model.embed_tokens.weight", ("vocabulary", "hidden")),
        Rule("output_norm.weight", "model.norm.weight", ("hidden",)),
        Rule("output.weight", "lm_head.weight", ("vocabulary", "hidden"), optional=True),
    ),
    layer_rules=(
        Rule("attn_norm.weight", "input_layernorm.weight", ("hidden",)),
        Rule("attn_q.weight", "self_attn.q_proj.weight", ("queries", "hidden"), interleaved="heads"),
        Rule("attn_k.weight", "self_attn.k_proj.weight", ("keys", "hidden"), interleaved="kv_heads"),
        Rule("attn_v.weight", "self_attn.v_proj.weight", ("keys", "hidden")),
        Rule("attn_output.weight", "self_attn.o_proj.weight", ("hidden", "queries")),
        Rule("attn_q.bias", "self_attn.q_proj.bias", ("queries",), optional=True, interleaved="heads"),
        Rule("attn_k.bias", "self_attn.k_proj.bias", ("keys",), optional=True, interleaved="kv_heads"),
        Rule("attn_v.bias", "self_attn.v_proj.bias", ("keys",), optional=True),
        Rule("attn_output.bias", "self_attn.o_proj.bias", ("hidden",), optional=True),
        Rule("ffn_norm.weight", "post_attention_layernorm.weight", ("hidden",)),
        Rule("ffn_gate.weight", "mlp.gate_proj.weight", ("inner", "hidden")),
        Rule("ffn_up.weight", "mlp.up_proj.weight", ("inner", "hidden")),
        Rule("ffn_down.weight", "mlp.down_proj.weight", ("hidden", "inner")),
        Rule("ffn_gate.bias", "mlp.gate_proj.bias", ("inner",), optional=True),
        Rule("ffn_up.bias", "mlp.up_proj.bias", ("inner",), optional=True),
        Rule("ffn_down.bias", "mlp.down_proj.bias", ("hidden",), optional=True),
    ),
    ignored=frozenset({"rope_freqs.weight", "attn_rot_embd.weight"}),
)

ARCHITECTURES: Mapping[str, Architecture] = {architecture.name: architecture for architecture in (_LLAMA,)}


def architecture_of(metadata: Metadata) -> Architecture:
    """The architecture that ``general.architecture`` names; an unknown one is an error that lists the known."""
    kind = metadata.text("general.type", default="model")
    if kind != "model":
        metadata.fail(f"is a GGUF file of type {kind!r}, not a model")
    name = metadata.text("general.architecture")
    if name not in ARCHITECTURES:
        metadata.fail(f"architecture {name!r} is not supported (supported: {', '.join(ARCHITECTURES)})")
    return ARCHITECTURES[name]
