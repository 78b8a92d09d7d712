"""Directories that PEFT saved: scales by its configuration, modules by its keys, refusals of what is not plain LoRA."""

import math

import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_core.types import TensorSpec
from lattice_safetensors.adapter_loader import open_adapter
from tests.safetensors.adapter_writer import matrix, peft_tensors, words, write_peft

MODULE = "layers.0.self_attn.q_proj"
KEY = f"base_model.model.model.{MODULE}"


def scales(path):
    return {module: update.scale for module, update in open_adapter(path).updates().items()}


def refused(directory, said, tensors=None, config=None, **fields):
    """Whether opening fails with one line that names a file of the adapter."""
    write_peft(directory, tensors, config, **fields)
    with pytest.raises(ModelError, match=said) as raised:
        open_adapter(directory)
    assert raised.value.message.startswith(f"{directory}/adapter_")
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_factors_are_handed_out_as_they_are_stored(tmp_path, dtype):
    tensors = peft_tensors(dtype=dtype)
    adapter = open_adapter(write_peft(tmp_path, tensors))
    assert adapter.format == "PEFT"
    assert adapter.nbytes == sum(len(stored) for _, _, stored in tensors.values())
    update = adapter.updates()[MODULE]
    assert update.a.spec == TensorSpec(f"{KEY}.lora_A.weight", dtype, (4, 6))
    assert update.b.spec == TensorSpec(f"{KEY}.lora_B.weight", dtype, (10, 4))
    assert bytes(update.a.data) == tensors[f"{KEY}.lora_A.weight"][2]
    assert bytes(update.b.data) == tensors[f"{KEY}.lora_B.weight"][2]
    assert update.rank == 4


def test_updates_stay_valid_after_close_and_are_refused_from_then_on(tmp_path):
    tensors = peft_tensors()
    adapter = open_adapter(write_peft(tmp_path, tensors))
    update = adapter.updates()[MODULE]
    adapter.close()
    assert bytes(update.a.data) == tensors[f"{KEY}.lora_A.weight"][2]
    with pytest.raises(ModelError, match="is read after the file was closed"):
        adapter.updates()


def test_the_scale_is_alpha_over_rank(tmp_path):
    assert scales(write_peft(tmp_path, lora_alpha=10)) == {MODULE: 2.5}


def test_the_scale_of_rslora_is_alpha_over_the_root_of_rank(tmp_path):
    tensors = peft_tensors(rank=3)
    assert scales(write_peft(tmp_path, tensors, r=3, lora_alpha=6, use_rslora=True)) == {MODULE: 6 / math.sqrt(3)}


def test_patterns_give_modules_ranks_and_alphas_of_their_own(tmp_path):
    tensors = {}
    for path, rank in (("layers.0.q_proj", 2), ("layers.1.q_proj", 3), ("layers.0.v_proj", 4), ("layers.0.xv_proj", 4)):
        tensors |= peft_tensors(f"model.{path}", rank=rank)
    found = write_peft(
        tmp_path,
        tensors,
        rank_pattern={"layers.0.q_proj": 2, r"^model\.layers\.\d\.q_proj": 3},
        alpha_pattern={"v_proj": 2, r"layers\.[01]\.(q|v)_proj": 12},
    )
    assert scales(found) == {"layers.0.q_proj": 6.0, "layers.1.q_proj": 4.0, "layers.0.v_proj": 0.5, "layers.0.xv_proj": 2.0}


def test_patterns_see_the_path_within_the_base_model(tmp_path):
    path = "model.language_model.layers.0.self_attn.q_proj"
    write_peft(tmp_path, peft_tensors(path), alpha_pattern={f"^{path}": 4, "^model.layers": 400, "base_model.*": 400})
    assert scales(tmp_path) == {MODULE: 1.0}


def test_scales_of_rslora_follow_patterns_too(tmp_path):
    tensors = peft_tensors(rank=9)
    write_peft(tmp_path, tensors, use_rslora=True, rank_pattern={"q_proj": 9}, alpha_pattern={"q_proj": 6})
    assert scales(tmp_path) == {MODULE: 2.0}


@pytest.mark.parametrize("value", [True, False, None, "gaussian", "eva", "orthogonal", "mica"])
def test_starts_that_leave_the_base_as_it_is_are_opened(tmp_path, value):
    assert scales(write_peft(tmp_path, init_lora_weights=value)) == {MODULE: 2.0}


@pytest.mark.parametrize("value", ["pissa", "pissa_niter_16", "olora", "OLoRA", "corda", "lora_ga"])
def test_starts_that_take_from_the_base_are_refused_with_the_way_out(tmp_path, value):
    refused(tmp_path, f"init_lora_weights is '{value}': .* path_initial_model_for_weight_conversion", init_lora_weights=value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only LORA is supported"),
        ({"peft_type": None}, "peft_type is 'None'; only LORA"),
        ({"peft_type": 3}, "peft_type is '3', a text is expected"),
        ({"use_dora": True}, "use_dora is true: DoRA is not supported; merge the adapter into its base"),
        ({"use_dora": "yes"}, "use_dora is 'yes', true or false is expected"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is true: .* transposed weights"),
        ({"lora_bias": True}, "lora_bias is true: biases of LoRA factors"),
        ({"use_qalora": True}, "use_qalora is true: QA-LoRA"),
        ({"use_novel_lora": True}, "use_novel_lora is true: this kind of LoRA is not known here"),
        ({"layer_replication": [[0, 2], [1, 3]]}, "layer_replication is .*repeated layers"),
        ({"trainable_token_indices": [1, 2]}, r"trainable_token_indices is '\[1, 2\]': trained tokens"),
        ({"target_parameters": ["mlp.experts.gate_up_proj"]}, "target_parameters is .*adapters on parameters"),
        ({"megatron_config": {"a": 1}}, "megatron_config is .*Megatron"),
        ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens is .*activated LoRA"),
        ({"use_bdlora": {"nblocks": 2}}, "use_bdlora is .*block-diagonal"),
        ({"arrow_config": {"a": 1}}, "arrow_config is .*routing"),
        ({"kasa_config": {"beta": 1}}, "kasa_config is .*KaSA changes the base"),
        ({"monteclora_config": {"a": 1}}, "monteclora_config is .*variational"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights is 'loftq': the adapter corrects one quantised base"),
        ({"init_lora_weights": "novel"}, "init_lora_weights is 'novel', which is not known to leave the base"),
        ({"init_lora_weights": 1}, "init_lora_weights is '1', which is not known"),
        ({"r": None}, "r is missing; without it the adapter's scale is unknown"),
        ({"r": 0}, "r is '0', a rank of 1 to 4096 is expected"),
        ({"r": 4097}, "r is '4097', a rank of 1 to 4096"),
        ({"r": True}, "r is 'True', a rank"),
        ({"r": 4.0}, r"r is '4\.0', a rank"),
        ({"lora_alpha": None}, "lora_alpha is missing"),
        ({"lora_alpha": 0}, "lora_alpha is '0', a finite number other than 0"),
        ({"lora_alpha": "8"}, "lora_alpha is '8', a finite number"),
        ({"lora_alpha": True}, "lora_alpha is 'True', a finite number"),
        ({"lora_alpha": 1e300}, r"lora_alpha is '1e\+300', a finite number"),
        ({"lora_alpha": 10**400}, "lora_alpha is '1000.*', a finite number"),
        ({"use_rslora": 1}, "use_rslora is '1', true or false"),
        ({"rank_pattern": []}, r"rank_pattern is '\[\]', an object is expected"),
        ({"rank_pattern": {"q_proj": "4"}}, "rank_pattern: q_proj is '4', a rank"),
        ({"alpha_pattern": {"q_proj": None}}, "alpha_pattern: 'q_proj' is null"),
        ({"rank_pattern": {"a\nb": "4"}}, r"rank_pattern: 'a\\nb' is '4', a rank"),
        ({"use_a\nb": True}, r"'use_a\\nb' is true: this kind of LoRA is not known here"),
        ({"alpha_pattern": {"q_(proj": 4}}, r"alpha_pattern: the key 'q_\(proj' is no pattern .*: a group is not closed"),
    ],
)
def test_a_configuration_that_is_wrong_or_not_plain_lora_is_refused(tmp_path, fields, said):
    refused(tmp_path, f"adapter_config.json: {said}", **fields)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no valid JSON"),
        ("[]", "holds a JSON array, an object is expected"),
        ('{"peft_type": "LORA", "r": 4, "r": 4, "lora_alpha": 8}', "is no valid JSON"),
        ('{"peft_type": "LORA", "r": 4, "lora_alpha": NaN}', "is no valid JSON"),
        ('{"peft_type": "LORA", "r": 4, "lora_alpha": 1e999}', "is no valid JSON|finite number"),
        ('{"r": 4}', "has neither peft_type .* nor lora_parameters"),
        (" " * (8 << 20) + "{}", "has 8388610 bytes; at most 8388608 are read"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused(tmp_path, text, said):
    refused(tmp_path, f"adapter_config.json: {said}", config=text)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, 4), ({"r": 8, "rank_pattern": {"q_proj": 2}}, 2), ({"r": 5, "rank_pattern": {"k_proj": 3}}, 5)],
)
def test_a_rank_that_contradicts_the_configuration_names_the_tensor(tmp_path, fields, expected):
    said = f"adapter_config.json: gives 'model.{MODULE}' the rank {expected}, its tensor '{KEY}.lora_A.weight' has 3"
    refused(tmp_path, said, peft_tensors(rank=3), **fields)


def test_patterns_that_need_too_much_memory_are_refused(tmp_path):
    pattern = {f"(a{{100}}){{40}}{number}": 4 for number in range(100)}
    refused(tmp_path, "adapter_config.json: rank_pattern: its expressions need more than 262144 steps", rank_pattern=pattern)


def test_the_name_of_a_module_is_shown_quoted_and_short(tmp_path):
    path = "model.layers.0.q\x1bproj" + "x" * 10_000
    refused(tmp_path, r"gives 'model.layers.0.q\\x1bprojx+\.\.\.' the rank 4", peft_tensors(path, rank=3))


def test_a_name_of_two_lines_is_unexpected(tmp_path):
    refused(tmp_path, r"unexpected tensor 'base_model.model.layers.0.q\\nproj.lora_A.weight'", peft_tensors("layers.0.q\nproj"))


@pytest.mark.parametrize("prefix", ["", "model.", "model.model.", "model.language_model.", "language_model.model."])
@pytest.mark.parametrize("module", [MODULE, "layers.12.mlp.experts.3.gate_proj", "lm_head", "layers.0.linear_attn.in_proj_qkv"])
def test_wrappers_around_the_decoder_are_no_part_of_a_modules_name(tmp_path, prefix, module):
    assert list(open_adapter(write_peft(tmp_path, peft_tensors(prefix + module))).updates()) == [module]


@pytest.mark.parametrize("module", ["visual.encoder.layers.0.self_attn.q_proj", "mtp.layers.0.self_attn.q_proj"])
def test_what_lies_beside_the_decoder_never_passes_for_it(tmp_path, module):
    assert list(open_adapter(write_peft(tmp_path, peft_tensors(f"model.{module}"))).updates()) == [module]


@pytest.mark.parametrize("ending", ["", ".weight", ".default.weight", ".my-adapter.weight"])
def test_keys_may_leave_out_weight_or_carry_the_adapters_name(tmp_path, ending):
    tensors = {name.removesuffix(".weight") + ending: tensor for name, tensor in peft_tensors().items()}
    assert scales(write_peft(tmp_path, tensors)) == {MODULE: 2.0}


def test_two_keys_of_one_module_are_an_error_that_names_both(tmp_path):
    tensors = peft_tensors() | peft_tensors(MODULE)
    refused(tmp_path, f"'{KEY}.lora_A.weight' and 'base_model.model.{MODULE}.lora_A.weight' are both A of the module", tensors)
    tensors = peft_tensors() | {f"{KEY}.lora_A.other.weight": matrix("F32", 4, 6)}
    refused(tmp_path, f"'{KEY}.lora_A.weight' and '{KEY}.lora_A.other.weight' are both A", tensors)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{KEY}.lora_magnitude_vector", "a DoRA magnitude: DoRA is not supported"),
        (f"{KEY}.lora_magnitude_vector.default.weight", "a DoRA magnitude"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", "an adapter on embeddings, which is not supported"),
        (f"{KEY}.lora_B.bias", "a bias of a LoRA factor"),
        (f"{KEY}.bias", "a trained bias, which is not supported"),
        ("base_model.model.lm_head.weight", "a module's whole weight"),
        ("base_model.model.lm_head.modules_to_save.weight", "a module's whole weight"),
    ],
)
def test_tensors_beside_the_factors_are_refused_for_what_they_are(tmp_path, name, said):
    tensors = peft_tensors() | {name: matrix("F32", 10)}
    refused(tmp_path, f"tensor '{name}' is {said}", tensors, bias="lora_only", modules_to_save=["lm_head"])


def test_fields_without_tensors_of_their_own_are_no_reason_to_refuse(tmp_path):
    assert scales(write_peft(tmp_path, bias="all", modules_to_save=["lm_head"], layers_to_transform=[0])) == {MODULE: 2.0}


def test_an_unknown_tensor_is_unexpected(tmp_path):
    refused(tmp_path, "unexpected tensor 'lora_rotation'", peft_tensors() | {"lora_rotation": matrix("F32", 3)})


def test_a_configuration_of_the_other_library_is_refused(tmp_path):
    refused(
        tmp_path,
        "named as PEFT names them, the adapter_config.json beside it is MLX's",
        config={"lora_parameters": {"scale": 1}},
    )


def test_a_file_in_the_directory_opens_as_the_directory_does(tmp_path):
    directory = write_peft(tmp_path, lora_alpha=10)
    whole, one = open_adapter(directory), open_adapter(directory / "adapter_model.safetensors")
    assert one.updates()[MODULE].scale == 2.5
    assert one.fingerprint == whole.fingerprint


def test_updates_equal_the_product_of_the_stored_factors(tmp_path):
    tensors = peft_tensors()
    update = open_adapter(write_peft(tmp_path, tensors)).updates()[MODULE]
    a = np.frombuffer(tensors[f"{KEY}.lora_A.weight"][2], "<f4").reshape(4, 6)
    b = np.frombuffer(tensors[f"{KEY}.lora_B.weight"][2], "<f4").reshape(10, 4)
    np.testing.assert_array_equal(update.scale * (words(update.b) @ words(update.a)), 8 / 4 * (b @ a))
