"""Writes adapters for tests as PEFT and mlx-lm save them, sound or not."""

import json

import numpy as np

from tests.safetensors.safetensors_writer import document

QUERY = "model.layers.0.self_attn.q_proj"
NUMPY = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def matrix(dtype, *shape, seed=0):
    """A tensor of seeded numbers."""
    values = np.random.default_rng([seed, *shape]).normal(size=shape).astype("<f4")
    if dtype == "BF16":
        return dtype, shape, (values.view("<u4") >> 16).astype("<u2").tobytes()
    return dtype, shape, values.astype(NUMPY[dtype]).tobytes()


def words(data):
    """The numbers of a ``TensorData`` as they are stored."""
    return np.frombuffer(data.data, NUMPY[data.spec.dtype]).reshape(data.spec.shape)


def peft_tensors(path=QUERY, rank=4, width=6, out=10, dtype="F32"):
    return {
        f"base_model.model.{path}.lora_A.weight": matrix(dtype, rank, width),
        f"base_model.model.{path}.lora_B.weight": matrix(dtype, out, rank, seed=1),
    }


def mlx_tensors(path=QUERY, rank=4, width=6, out=10, dtype="F32"):
    return {f"{path}.lora_a": matrix(dtype, width, rank), f"{path}.lora_b": matrix(dtype, rank, out, seed=1)}


def peft_config(**fields):
    """What PEFT writes for rank 4 and alpha 8, with ``fields`` in place of its own."""
    return {
        "alpha_pattern": {},
        "bias": "none",
        "exclude_modules": None,
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "layer_replication": None,
        "layers_to_transform": None,
        "lora_alpha": 8,
        "lora_bias": False,
        "megatron_config": None,
        "megatron_core": "megatron.core",
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": 4,
        "rank_pattern": {},
        "target_modules": ["q_proj"],
        "target_parameters": None,
        "trainable_token_indices": None,
        "use_dora": False,
        "use_qalora": False,
        "use_rslora": False,
    } | fields


def mlx_config(**parameters):
    """What mlx-lm writes for rank 4 and scale 20, with ``parameters`` in place of its ``lora_parameters``."""
    return {
        "fine_tune_type": "lora",
        "num_layers": 16,
        "lora_parameters": {"rank": 4, "scale": 20.0, "dropout": 0.0} | parameters,
    }


def write(directory, tensors, config, name, metadata=None):
    """Write an adapter into a directory; without a configuration for None, with text as it stands."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(document(tensors, metadata))
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (directory / "adapter_config.json").write_text(text)
    return directory


def write_peft(directory, tensors=None, config=None, **fields):
    tensors = peft_tensors() if tensors is None else tensors
    return write(directory, tensors, peft_config(**fields) if config is None else config, "adapter_model.safetensors")


def write_mlx(directory, tensors=None, config=None, **parameters):
    tensors = mlx_tensors() if tensors is None else tensors
    return write(directory, tensors, mlx_config(**parameters) if config is None else config, "adapters.safetensors")


def write_bare(directory, tensors=None, metadata=None, name="french.safetensors"):
    return write(directory, peft_tensors() if tensors is None else tensors, None, name, metadata) / name
