"""Directories whose files are sound one by one, and do not go together: indices, configurations, names, QuaRot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.q4.damage import (
    NORM_FILE,
    PACKED,
    PACKED_FILE,
    broken,
    change_json,
    entry_of,
    found_after_opening,
    rewrite_index,
)
from tests.q4.q4_directory import INDEX, NESTED, UNTIED, converted, write

if TYPE_CHECKING:
    from pathlib import Path

HEAD_FILE = "lm_head_weight.q4"


@broken
def build_index_no_json(directory: Path) -> str:
    (write(directory) / INDEX).write_text('[{"name": ')
    return f"{INDEX}: is no valid JSON: syntax error"


@broken
def build_index_twice_the_same_key(directory: Path) -> str:
    (write(directory) / INDEX).write_text('{"tensors": [], "tensors": []}')
    return f"{INDEX}: is no valid JSON"


@broken
def build_index_nested_too_deep(directory: Path) -> str:
    (write(directory) / INDEX).write_text("[" * 40 + "]" * 40)
    return f"{INDEX}: is no valid JSON: it is nested more than 32 deep"


@broken
def build_index_of_another_kind(directory: Path) -> str:
    (write(directory) / INDEX).write_text('{"weight_map": {}}')
    return f"{INDEX}: is neither a list of tensors nor an object with one called 'tensors'"


@broken
def build_index_oversized(directory: Path) -> str:
    path = write(directory) / INDEX
    with path.open("ab") as file:
        file.truncate((16 << 20) + 1)
    return f"{INDEX}: has {(16 << 20) + 1} bytes; at most {16 << 20} are read"


@broken
def build_index_dangling(directory: Path) -> str:
    path = write(directory) / INDEX
    path.unlink()
    path.symlink_to(directory / "nowhere")
    return f"{INDEX}: cannot be read: No such file or directory"


@broken
def build_index_empty(directory: Path) -> str:
    (write(directory) / INDEX).write_text("[]")
    return f"{INDEX}: names no tensor"


@broken
def build_index_entry_no_object(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entries.insert(2, "model.norm.weight"))
    return f"{INDEX}: entry 2 is 'model.norm.weight', an object is expected"


@broken
def build_index_entry_without_file(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entries[1].pop("file"))
    return f"{INDEX}: entry 1 has the file None, a text is expected"


@broken
def build_index_traversal(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entries[0].update(file="../outside.q4"))
    return f"{INDEX}: the file '../outside.q4' is not inside the directory of the model"


@broken
def build_index_absolute(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entries[0].update(file="C:\\outside.q4"))
    return f"{INDEX}: the file 'C:\\\\outside.q4' is not inside the directory of the model"


@broken
def build_index_through_a_link(directory: Path) -> str:
    write(directory)
    (directory / "away").symlink_to(directory.parent, target_is_directory=True)
    rewrite_index(directory, lambda entries: entry_of(entries, PACKED).update(file=f"away/{PACKED_FILE}"))
    return f"away/{PACKED_FILE}: a symbolic link leads it out of the directory of the model"


@broken
def build_index_names_a_tensor_twice(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entries[0].update(name=PACKED))
    return f"{INDEX}: names '{PACKED}' twice: it is damaged"


@broken
def build_index_names_a_file_twice(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entries[0].update(file=f"./{PACKED_FILE}", quantized=True))
    return f"{INDEX}: names '{PACKED_FILE}' twice: it is damaged"


@broken
def build_index_other_suffix(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entries[0].update(file="weights.bin"))
    return "only *.q4 and *.f16 files are read"


@broken
def build_index_other_format(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entry_of(entries, PACKED).update(quantized=False))
    return f"tensor '{PACKED}' is in '{PACKED_FILE}', but its 'quantized' is False"


@broken
def build_index_other_shape(directory: Path) -> str:
    def transpose(entries: list[dict]) -> None:
        entry = entry_of(entries, PACKED)
        entry["shape"] = entry["shape"][::-1]

    rewrite_index(write(directory), transpose)
    return f"{PACKED_FILE}: has the shape"


@broken
def build_index_other_count(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entry_of(entries, PACKED).update(numel=1))
    return f"tensor '{PACKED}' has the shape"


@broken
def build_index_impossible_shape(directory: Path) -> str:
    rewrite_index(write(directory), lambda entries: entry_of(entries, PACKED).update(shape=[-1, -32]))
    return f"tensor '{PACKED}' has the impossible shape [-1, -32]"


@broken
def build_missing_files(directory: Path) -> str:
    write(directory)
    (directory / PACKED_FILE).unlink()
    (directory / NORM_FILE).unlink()
    total = len(converted("tiny-qwen35-tied-bf16")[1])
    return f"2 of {total} tensor files are missing: {PACKED_FILE}, {NORM_FILE}; get them too"


@broken
def build_only_a_cache(directory: Path) -> str:
    write(directory, index=False)
    for path in [*directory.glob("*.q4"), *directory.glob("*.f16")]:
        path.unlink()
    (directory / "merged_qkvz_0_64_64.q4").write_bytes(b"")
    return "holds no *.q4 file of a tensor"


@broken
def build_unknown_file_name(directory: Path) -> str:
    path = write(directory, index=False) / PACKED_FILE
    path.rename(directory / "model_layers_1_mlp_sideways_proj_weight.q4")
    return "model_layers_1_mlp_sideways_proj_weight.q4: which tensor it holds cannot be told from its name"


@broken
def build_tensor_in_two_files(directory: Path) -> str:
    write(directory)
    (directory / PACKED_FILE.replace(".q4", ".f16")).write_bytes((directory / NORM_FILE).read_bytes())
    return f"are the same tensor '{PACKED}'; remove one"


@broken
def build_missing_config(directory: Path) -> str:
    (write(directory) / "config.json").unlink()
    return "config.json is missing; copy that of the model that was quantised"


@broken
def build_config_no_object(directory: Path) -> str:
    (write(directory) / "config.json").write_text("[]")
    return "config.json: holds a JSON array, an object is expected"


@broken
def build_config_no_json(directory: Path) -> str:
    (write(directory) / "config.json").write_text('{"a": NaN}')
    return "config.json: is no valid JSON"


@broken
def build_config_oversized(directory: Path) -> str:
    with (write(directory) / "config.json").open("ab") as file:
        file.truncate((8 << 20) + 1)
    return f"config.json: has {(8 << 20) + 1} bytes; at most {8 << 20} are read"


@broken
def build_tied_flag_no_flag(directory: Path) -> str:
    change_json(write(directory) / "config.json", tie_word_embeddings="yes")
    return "config.json: tie_word_embeddings is 'yes'; true or false is expected"


@broken
def build_tied_with_a_head(directory: Path) -> str:
    change_json(write(directory, UNTIED) / "config.json", tie_word_embeddings=True)
    return "config.json: tie_word_embeddings is true, but the directory holds 'lm_head.weight'; remove that file"


@broken
def build_untied_without_a_head(directory: Path) -> str:
    change_json(write(directory) / "config.json", tie_word_embeddings=False)
    return "config.json: tie_word_embeddings is false, but the directory holds no lm_head.weight; get lm_head_weight.q4 too"


@broken
def build_head_missing_and_no_flag(directory: Path) -> str:
    write(directory, UNTIED, index=False)
    (directory / HEAD_FILE).unlink()
    config = json.loads((directory / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    (directory / "config.json").write_text(json.dumps(config))
    return "config.json: tie_word_embeddings is not there, which means false, but the directory holds no lm_head.weight"


@broken
def build_quarot_online(directory: Path) -> str:
    entries = converted("tiny-qwen35-tied-bf16")[1]
    document = {"quarot_seed": 7, "tensors": entries, "artifact": {"V1Online": {"r3_seed": 9}}}
    (write(directory) / INDEX).write_text(json.dumps(document))
    return f"{INDEX}: declares rotations that an engine applies while it computes ('V1Online')"


@broken
def build_quarot_packed_mtp(directory: Path) -> str:
    change_json(write(directory, NESTED) / "config.json", quarot_rotation_seed=7)
    return "holds 'mtp.fc.weight' packed, which a QuaRot model keeps as .f16"


@broken
def build_quarot_two_seeds(directory: Path) -> str:
    write(directory)
    change_json(directory / "config.json", quarot_rotation_seed=8)
    entries = json.loads((directory / INDEX).read_text())
    (directory / INDEX).write_text(json.dumps({"quarot_seed": 7, "tensors": entries}))
    return f"{INDEX} was rotated with the seed 7, config.json says 8"


@found_after_opening
def build_missing_tokenizer(directory: Path) -> str:
    (write(directory) / "tokenizer.json").unlink()
    return "tokenizer.json is missing; get it too, or name another one by --tokenizer-dir"
