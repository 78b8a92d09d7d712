"""Reading the container: every value type, both versions, alignment, shards, and damaged files."""

import struct

import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_gguf.container import GgufFile
from lattice_gguf.tensor_types import TENSOR_TYPES
from tests.gguf import gguf_writer as gguf
from tests.gguf import tiny_llama

VALUES = {
    "a.u8": ("u8", 255),
    "a.i8": ("i8", -128),
    "a.u16": ("u16", 65535),
    "a.i16": ("i16", -32768),
    "a.u32": ("u32", 2**32 - 1),
    "a.i32": ("i32", -(2**31)),
    "a.u64": ("u64", 2**64 - 1),
    "a.i64": ("i64", -(2**63)),
    "a.f64": ("f64", 0.1),
    "a.bool": ("bool", True),
    "a.str": ("str", "grüße\n"),
    "a.empty": ("str", ""),
    "a.strings": ("[str]", ["x", "", "世"]),
    "a.nested": ("[[str]]", [["x"], []]),
}


@pytest.fixture
def write(tmp_path):
    def written(data):
        path = tmp_path / "file.gguf"
        path.write_bytes(data)
        return path

    return written


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_value_type(write, version):
    assert GgufFile(write(gguf.document(VALUES, {}, version=version))).metadata == {
        key: value for key, (_, value) in VALUES.items()
    }


def test_reads_arrays_of_numbers(write):
    arrays = {kind: [0, 1, 1] for kind in gguf.KINDS if kind != "str"}
    metadata = GgufFile(
        write(gguf.document({f"a.{kind}": (f"[{kind}]", items) for kind, items in arrays.items()}, {}))
    ).metadata
    assert {key: value.tolist() for key, value in metadata.items()} == {f"a.{kind}": items for kind, items in arrays.items()}
    assert metadata["a.bool"].dtype == np.bool_


def test_a_32_bit_float_reads_as_it_was_written(write):
    assert GgufFile(write(gguf.document({"a.eps": ("f32", 1e-5)}, {}))).metadata == {"a.eps": 1e-5}


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_tensors_lie_where_the_alignment_puts_them(write, alignment):
    stored = {"one": ("F32", (3,), bytes(range(12))), "two": ("BF16", (2, 5), bytes(range(100, 120)))}
    metadata = {"general.alignment": ("u32", alignment)} if alignment != 32 else {}
    file = GgufFile(write(gguf.document(metadata, stored, alignment=alignment)))
    assert {name: bytes(file.read(info)) for name, info in file.tensors.items()} == {
        name: item[2] for name, item in stored.items()
    }
    assert {name: info.shape for name, info in file.tensors.items()} == {"one": (3,), "two": (2, 5)}


def test_the_writer_and_the_reader_agree_on_all_type_numbers():
    assert {number: kind.name for number, kind in TENSOR_TYPES.items()} == {
        number: name for name, number in gguf.TYPES.items() if name != "IQ2_XXS"
    }


def one(name=b"t", shape=(4,), kind="F32", offset=0, data=bytes(16)):
    """A file of one tensor."""
    return gguf.aligned(gguf.header(1, 0) + gguf.info(name, shape, kind, offset)) + data


def keys(*pairs, count=None):
    """A file of some metadata."""
    return gguf.header(0, len(pairs) if count is None else count) + b"".join(pairs)


def array(kind, count, data=b""):
    return gguf.text("a.b") + struct.pack("<IIQ", gguf.ARRAY, kind, count) + data


def nested(depth):
    return gguf.text("a.b") + struct.pack("<I", gguf.ARRAY) + struct.pack("<IQ", gguf.ARRAY, 1) * depth + gguf.body("[u8]", [1])


GOOD = gguf.document(tiny_llama.metadata(), tiny_llama.tensors())
TWO = gguf.header(2, 0) + gguf.info("t", (4,), "F32", 0)
NINE = gguf.header(2, 0) + gguf.info("t", (9,), "F32", 0)
DAMAGED = {
    "empty": (b"", "0 bytes are no GGUF file"),
    "magic": (b"GGML" + GOOD[4:], "is no GGUF file: it begins with b'GGML'"),
    "a zip file": (b"PK\x03\x04" + bytes(100), "is no GGUF file"),
    "header cut": (GOOD[:20], "truncated or damaged: the metadata count needs 8 bytes, 4 remain"),
    "version 1": (gguf.header(0, 0, version=1), "has GGUF version 1; versions 2 and 3 are read"),
    "version of the future": (gguf.header(0, 0, version=4), "has GGUF version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is a big-endian GGUF file"),
    "tensor count": (gguf.header(2**60, 0) + bytes(64), "a header of 0 keys and [0-9]+ tensors needs"),
    "metadata count": (gguf.header(0, 2**63) + bytes(64), "a header of [0-9]+ keys and 0 tensors needs"),
    "metadata cut": (GOOD[:200], "truncated or damaged"),
    "key length": (keys(struct.pack("<Q", 2**62) + bytes(16)), "a metadata key needs [0-9]+ bytes, 16 remain"),
    "key empty": (keys(gguf.pair("", "u64", 1)), "metadata key '' is not valid"),
    "key not ASCII": (keys(gguf.pair("ä", "u64", 1)), "metadata key 'ä' is not valid"),
    "key not UTF-8": (keys(gguf.text(b"\xff\xfe") + bytes(12)), "a metadata key is not UTF-8"),
    "key twice": (keys(gguf.pair("a", "u64", 1), gguf.pair("a", "u64", 1)), "metadata key 'a' stands twice"),
    "value type": (keys(gguf.text("a.b") + struct.pack("<IQ", 13, 0)), "'a.b' has the unknown value type 13"),
    "value string length": (keys(gguf.text("a.b") + struct.pack("<IQ", 8, 2**63)), "'a.b' needs [0-9]+ bytes, 0 remain"),
    "value not UTF-8": (keys(gguf.pair("a.b", "str", b"\xc3")), "'a.b' is not UTF-8"),
    "value cut": (keys(gguf.pair("a.b", "u64", 1))[:-1], "'a.b' needs 8 bytes, 7 remain"),
    "boolean": (keys(gguf.text("a.b") + struct.pack("<IB", 7, 2)), "'a.b' is a boolean that is neither 0 nor 1"),
    "array type": (keys(array(99, 1, bytes(8))), "'a.b' is an array of the unknown value type 99"),
    "array of numbers": (keys(array(4, 2**61, bytes(8))), "'a.b' with [0-9]+ elements needs"),
    "array of strings": (keys(array(8, 2**61, bytes(8))), "'a.b' with [0-9]+ elements needs"),
    "arrays without end": (keys(nested(50)), "'a.b' nests arrays more than 4 deep"),
    "alignment 0": (keys(gguf.pair("general.alignment", "u32", 0)), "general.alignment is 0"),
    "alignment odd": (keys(gguf.pair("general.alignment", "u32", 12)), "general.alignment is 12, it must be a multiple of 8"),
    "alignment text": (keys(gguf.pair("general.alignment", "str", "32")), "general.alignment is 32"),
    "tensor name": (one(name=b"\xff"), "a tensor name is not UTF-8"),
    "no dimensions": (one(shape=()), "'t' has 0 dimensions"),
    "dimensions": (one(shape=(1,) * 5), "'t' has 5 dimensions, 1 to 4 are possible"),
    "dimension 0": (one(shape=(0,)), r"'t' has the impossible shape \[0\]"),
    "dimension product": (one(shape=(2**40, 2**40)), "'t' has the impossible shape"),
    "dimension count": (gguf.header(1, 0) + gguf.text("t") + struct.pack("<IQ", 2**31, 1) + bytes(8), "'t' has 2147483648 d"),
    "tensor type known": (one(shape=(256,), kind="IQ2_XXS"), r"'t' has the type IQ2_XXS, which is not read \(only F32, F16"),
    "tensor type unknown": (one(kind=77), "'t' has the type number 77, which is not read"),
    "tensor type removed": (one(kind=4), "'t' has the type number 4, which is not read"),
    "block": (one(shape=(2, 40), kind="Q8_0"), "'t': rows of 40 elements are not made of Q8_0 blocks of 32"),
    "offset alignment": (one(offset=16, data=bytes(64)), "'t' begins at offset 16, which is not a multiple of the"),
    "offset outside": (one(offset=2**40), "the file is truncated: tensor 't' ends at byte [0-9]+, the file at"),
    "data cut": (GOOD[:-1], "the file is truncated: tensor 'blk.1.ffn_down.weight' ends at byte"),
    "data missing": (one(data=b""), "the file is truncated: tensor 't' ends at byte"),
    "overlap": (gguf.aligned(TWO + gguf.info("u", (4,), "F32", 0)) + bytes(64), "tensors '[tu]' and '[tu]' overlap"),
    "overlap in part": (gguf.aligned(NINE + gguf.info("u", (4,), "F32", 32)) + bytes(64), "tensors 't' and 'u' overlap"),
    "name twice": (gguf.aligned(TWO + gguf.info("t", (4,), "F32", 32)) + bytes(64), "tensor 't' stands twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_clear_error(write, case):
    data, message = DAMAGED[case]
    path = write(data)
    with pytest.raises(ModelError, match=message) as caught:
        GgufFile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_no_prefix_of_a_file_is_taken_for_a_model(write):
    end_of_header = GOOD.index(b"blk.1.ffn_down.weight") + 60
    for length in range(0, end_of_header, 61):
        with pytest.raises(ModelError):
            GgufFile(write(GOOD[:length]))


def test_a_file_that_cannot_be_opened_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        GgufFile(tmp_path)
