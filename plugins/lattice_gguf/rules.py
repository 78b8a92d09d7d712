"""The tensors of blocks: names in the file and in Hugging Face notation, shapes, and the order of rows and columns.

Sources: ``gguf-py/gguf/constants.py``, ``tensor_mapping.py``, ``convert_hf_to_gguf.py`` with ``conversion/qwen.py`` and
``src/models/*.cpp`` (ggml project), and the parameter names of the Hugging Face model classes. Must not know which
architecture has which blocks, nor how tensors are stored.

Names are those below a layer: ``blk.N.`` in the file and ``model.layers.N.`` in Hugging Face notation.
"""

from __future__ import annotations

from enum import Enum, auto

from attrs import evolve, frozen


class Order(Enum):
    """How the file orders what Hugging Face notation has in another order.

    ``ROTARY_PAIRS``: rows 2i and 2i + 1 of a head form the pair that RoPE rotates; row i of the head's first half and row i
    of its second half do in Hugging Face notation. Only the llama architecture has them so.

    The others are about the value heads of Gated DeltaNet, where a key head serves several. Hugging Face notation has those of
    one key head side by side; the file has the first one of every key head, then the second one of every key head, and so on.
    That concerns single rows for each head (``VALUE_HEADS``), as many rows as a head is wide (``VALUE_ROWS``), the same after
    the rows of queries and keys (``VALUE_ROWS_LAST``), or columns (``VALUE_COLUMNS``).
    """

    ROTARY_PAIRS = auto()
    VALUE_HEADS = auto()
    VALUE_ROWS = auto()
    VALUE_ROWS_LAST = auto()
    VALUE_COLUMNS = auto()


@frozen
class Rule:
    """One tensor: its name in the file and in Hugging Face notation, its shape there in terms of ``Sizes.dimension``.

    ``decay``: the file holds ``-exp(A_log)``, Hugging Face notation ``A_log``.
    """

    gguf: str
    name: str
    shape: tuple[str | int, ...]
    optional: bool = False
    order: Order | None = None
    decay: bool = False

    def below(self, gguf: str, name: str) -> Rule:
        """The rule with prefixes before both names."""
        return evolve(self, gguf=gguf + self.gguf, name=name + self.name)


MODEL = (
    Rule("token_embd.weight", "model.embed_tokens.weight", ("vocabulary", "hidden")),
    Rule("output_norm.weight", "model.norm.weight", ("hidden",)),
    Rule("output.weight", "lm_head.weight", ("vocabulary", "hidden"), optional=True),
)
NORMS = (
    Rule("attn_norm.weight", "input_layernorm.weight", ("hidden",)),
    Rule("ffn_norm.weight", "post_attention_layernorm.weight", ("hidden",)),
)
QWEN35_NORMS = (NORMS[0], evolve(NORMS[1], gguf="post_attention_norm.weight"))

ATTENTION = (
    Rule("attn_q.weight", "self_attn.q_proj.weight", ("queries", "hidden")),
    Rule("attn_k.weight", "self_attn.k_proj.weight", ("keys", "hidden")),
    Rule("attn_v.weight", "self_attn.v_proj.weight", ("keys", "hidden")),
    Rule("attn_output.weight", "self_attn.o_proj.weight", ("hidden", "queries")),
)
ATTENTION_BIASES = (
    Rule("attn_q.bias", "self_attn.q_proj.bias", ("queries",)),
    Rule("attn_k.bias", "self_attn.k_proj.bias", ("keys",)),
    Rule("attn_v.bias", "self_attn.v_proj.bias", ("keys",)),
)
QUERY_KEY_NORMS = (
    Rule("attn_q_norm.weight", "self_attn.q_norm.weight", ("head_dim",)),
    Rule("attn_k_norm.weight", "self_attn.k_norm.weight", ("head_dim",)),
)
# Each head's query rows stand before its gate rows, in both notations.
GATED_ATTENTION = (evolve(ATTENTION[0], shape=("gated_queries", "hidden")), *ATTENTION[1:], *QUERY_KEY_NORMS)
LLAMA_ATTENTION = (
    *(evolve(rule, order=Order.ROTARY_PAIRS) for rule in ATTENTION[:2]),
    *ATTENTION[2:],
    *(evolve(rule, order=Order.ROTARY_PAIRS, optional=True) for rule in ATTENTION_BIASES[:2]),
    evolve(ATTENTION_BIASES[2], optional=True),
    Rule("attn_output.bias", "self_attn.o_proj.bias", ("hidden",), optional=True),
)

DELTA_NET = (
    Rule("attn_qkv.weight", "linear_attn.in_proj_qkv.weight", ("channels", "hidden"), order=Order.VALUE_ROWS_LAST),
    Rule("attn_gate.weight", "linear_attn.in_proj_z.weight", ("values", "hidden"), order=Order.VALUE_ROWS),
    Rule("ssm_beta.weight", "linear_attn.in_proj_b.weight", ("value_heads", "hidden"), order=Order.VALUE_HEADS),
    Rule("ssm_alpha.weight", "linear_attn.in_proj_a.weight", ("value_heads", "hidden"), order=Order.VALUE_HEADS),
    # The converter has added 1 to all norms but `ssm_norm`. In Hugging Face notation [channels, 1, kernel] would stand for
    # norms without it; [channels, kernel, 1] is how checkpoints are stored whose norms have it, with the same bytes.
    Rule("ssm_conv1d.weight", "linear_attn.conv1d.weight", ("channels", "kernel", 1), order=Order.VALUE_ROWS_LAST),
    Rule("ssm_a", "linear_attn.A_log", ("value_heads",), order=Order.VALUE_HEADS, decay=True),
    Rule("ssm_dt.bias", "linear_attn.dt_bias", ("value_heads",), order=Order.VALUE_HEADS),
    Rule("ssm_norm.weight", "linear_attn.norm.weight", ("value_dim",)),
    Rule("ssm_out.weight", "linear_attn.out_proj.weight", ("hidden", "values"), order=Order.VALUE_COLUMNS),
)

FEED_FORWARD = (
    Rule("ffn_gate.weight", "mlp.gate_proj.weight", ("inner", "hidden")),
    Rule("ffn_up.weight", "mlp.up_proj.weight", ("inner", "hidden")),
    Rule("ffn_down.weight", "mlp.down_proj.weight", ("hidden", "inner")),
)
FEED_FORWARD_BIASES = (
    Rule("ffn_gate.bias", "mlp.gate_proj.bias", ("inner",), optional=True),
    Rule("ffn_up.bias", "mlp.up_proj.bias", ("inner",), optional=True),
    Rule("ffn_down.bias", "mlp.down_proj.bias", ("hidden",), optional=True),
)
ROUTER = (Rule("ffn_gate_inp.weight", "mlp.gate.weight", ("experts", "hidden")),)
EXPERTS = (
    Rule("ffn_gate_exps.weight", "mlp.switch_mlp.gate_proj.weight", ("experts", "expert_inner", "hidden")),
    Rule("ffn_up_exps.weight", "mlp.switch_mlp.up_proj.weight", ("experts", "expert_inner", "hidden")),
    Rule("ffn_down_exps.weight", "mlp.switch_mlp.down_proj.weight", ("experts", "hidden", "expert_inner")),
)
# With the rows of the gate before those of `up`, as Hugging Face notation has them.
FUSED_EXPERTS = (
    Rule("ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj", ("experts", "expert_gate_up", "hidden")),
    Rule("ffn_down_exps.weight", "mlp.experts.down_proj", ("experts", "hidden", "expert_inner")),
)
SHARED_EXPERT = (
    Rule("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", (1, "hidden")),
    Rule("ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", ("shared_inner", "hidden")),
    Rule("ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", ("shared_inner", "hidden")),
    Rule("ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", ("hidden", "shared_inner")),
)

# The parts of a head for multi-token prediction beside its decoder layer.
PREDICTION_HEAD = (
    Rule("nextn.eh_proj.weight", "fc.weight", ("hidden", "twice_hidden")),
    Rule("nextn.enorm.weight", "pre_fc_norm_embedding.weight", ("hidden",)),
    Rule("nextn.hnorm.weight", "pre_fc_norm_hidden.weight", ("hidden",)),
    Rule("nextn.shared_head_norm.weight", "norm.weight", ("hidden",)),
)
