"""Files that stand alone, in either notation: alpha from their metadata, and what is said without one."""

import pytest

from lattice_core.errors import ModelError
from lattice_safetensors.adapter_loader import open_adapter
from tests.safetensors.adapter_writer import mlx_tensors, peft_tensors, write_bare

MODULE = "layers.0.self_attn.q_proj"


def scales(path):
    return {module: update.scale for module, update in open_adapter(path).updates().items()}


@pytest.mark.parametrize(("tensors", "notation"), [(peft_tensors(), "PEFT"), (mlx_tensors(), "MLX")])
def test_the_notation_is_told_by_the_names(tmp_path, tensors, notation):
    adapter = open_adapter(write_bare(tmp_path, tensors))
    assert adapter.format == notation
    assert adapter.updates()[MODULE].a.spec.shape == (4, 6)
    assert adapter.updates()[MODULE].b.spec.shape == (10, 4)


@pytest.mark.parametrize("name", ["alpha", "lora_alpha"])
@pytest.mark.parametrize("tensors", [peft_tensors(), mlx_tensors()])
def test_the_scale_is_alpha_of_the_metadata_over_rank(tmp_path, tensors, name, caplog):
    assert scales(write_bare(tmp_path, tensors, {name: "10", "format": "pt"})) == {MODULE: 2.5}
    assert caplog.messages == []


def test_alpha_is_shared_by_modules_of_different_ranks(tmp_path):
    tensors = peft_tensors("layers.0.a", rank=2) | peft_tensors("layers.0.b", rank=4)
    assert scales(write_bare(tmp_path, tensors, {"alpha": "8"})) == {"layers.0.a": 4.0, "layers.0.b": 2.0}


def test_without_an_alpha_the_scale_is_1_and_that_is_said(tmp_path, caplog):
    file = write_bare(tmp_path)
    assert scales(file) == {MODULE: 1.0}
    said = "no adapter_config.json lies beside it and its metadata holds no alpha: its scale is 1"
    assert caplog.messages == [f"{file}: {said}"]


@pytest.mark.parametrize("alpha", ["", "ten", "0", "-8", "nan", "inf", "1e39", "0x10"])
def test_an_alpha_that_is_no_finite_number_above_0_is_refused(tmp_path, alpha):
    file = write_bare(tmp_path, metadata={"alpha": alpha})
    with pytest.raises(ModelError, match=f"{file}: alpha in its metadata is '{alpha}', a finite number above 0 is expected"):
        open_adapter(file)


def test_two_alphas_have_to_agree(tmp_path):
    assert scales(write_bare(tmp_path, metadata={"alpha": "8", "lora_alpha": "8.0"})) == {MODULE: 2.0}
    with pytest.raises(ModelError, match="its metadata holds alpha 8 and lora_alpha 16; only one alpha"):
        open_adapter(write_bare(tmp_path, metadata={"alpha": "8", "lora_alpha": "16"}))


def test_the_configuration_of_a_model_beside_the_file_is_not_its_own(tmp_path):
    (tmp_path / "config.json").write_text('{"lora_alpha": 100, "r": 4}')
    assert scales(write_bare(tmp_path, metadata={"alpha": "8"})) == {MODULE: 2.0}
