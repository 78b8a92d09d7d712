"""Names told from file names: every name that checkpoints of this field use, and nothing that is not one."""

import pytest

from lattice_q4.khq4 import mangled
from lattice_q4.tensor_names import known_names, original_name
from tests.q4.q4_directory import DATA, weights

MODELS = sorted(path.name for path in DATA.glob("tiny-*"))


@pytest.mark.parametrize("model", MODELS)
def test_names_of_checkpoints_are_told_from_their_files(model):
    names = list(weights(model))
    assert [original_name(mangled(name)) for name in names] == names


@pytest.mark.parametrize(
    "name",
    [
        "model.language_model.layers.3.self_attn.q_proj.weight",
        "language_model.model.layers.63.linear_attn.A_log",
        "model.language_model.layers.39.mlp.experts.255.gate_proj.weight",
        "model.language_model.layers.0.mlp.experts.gate_up_proj",
        "model.layers.10.mlp.gate.weight",
        "model.layers.10.mlp.gate_proj.weight",
        "model.layers.10.mlp.shared_expert_gate.weight",
        "model.layers.10.mlp.shared_expert.gate_proj.weight",
        "model.layers.1.self_attn.q_proj.bias",
        "mtp.layers.0.mlp.experts.down_proj",
        "mtp.pre_fc_norm_hidden.weight",
        "model.visual.blocks.11.norm1.bias",
        "model.visual.merger.mlp.0.weight",
        "model.visual.deepstack_merger_list.2.linear_fc1.weight",
        "model.visual.pos_embed.weight",
        "lm_head.weight",
    ],
)
def test_a_name_is_told_from_its_file(name):
    assert original_name(mangled(name)) == name


@pytest.mark.parametrize(
    "stem",
    [
        "",
        "weight",
        "model_layers_x_self_attn_q_proj_weight",
        "model_layers_03_self_attn_q_proj_weight",
        "model_layers_N_self_attn_q_proj_weight",
        "model_layers__self_attn_q_proj_weight",
        "model_layers_3_self_attn_q_proj",
        "model_layers_3_self_attn_q_proj_weight_",
        "merged_qkvz_0_1_2",
    ],
)
def test_other_stems_are_no_names(stem):
    assert original_name(stem) is None


def test_no_two_known_names_share_a_file():
    for stem, name in known_names().items():
        assert mangled(name) == stem
    numbered = {mangled(name.replace("N", "7")) for name in known_names().values()}
    assert len(numbered) == len(known_names())
    assert {original_name(stem) for stem in numbered} == {name.replace("N", "7") for name in known_names().values()}
