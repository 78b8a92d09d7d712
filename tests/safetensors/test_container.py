"""Reading one file: what is in it, views that outlive it, bounds on memory; damage of any kind is one kind of error."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_core.errors import ModelError
from lattice_safetensors.container import SafetensorsFile, TensorInfo
from lattice_safetensors.dtypes import BITS_OF
from tests.safetensors.damage import DATA
from tests.safetensors.safetensors_writer import document, entries, framed

SOUND = {
    "one": ("F32", (3,), bytes(range(12))),
    "two": ("BF16", (2, 5), bytes(range(100, 120))),
    "scalar": ("I64", (), bytes(range(8))),
    "empty": ("F16", (0, 7), b""),
    "mask": ("BOOL", (3,), b"\1\0\1"),
}


@pytest.fixture
def write(tmp_path):
    def written(data):
        path = tmp_path / "file.safetensors"
        path.write_bytes(data)
        return path

    return written


def test_tensors_have_the_names_shapes_and_bytes_that_were_written(write):
    file = SafetensorsFile(write(document(SOUND, {"format": "pt"})))
    assert file.metadata == {"format": "pt"}
    assert file.nbytes == 43
    assert {name: (info.dtype, info.shape, bytes(file.read(name))) for name, info in file.tensors.items()} == SOUND


def test_positions_count_from_the_begin_of_the_file(write):
    path = write(document(SOUND))
    info = SafetensorsFile(path).tensors["two"]
    assert info == TensorInfo("two", "BF16", (2, 5), info.start, 20)
    assert path.read_bytes()[info.start : info.start + 20] == SOUND["two"][2]


def test_the_order_of_the_data_is_not_that_of_the_names(write):
    found, data = entries(SOUND)
    file = SafetensorsFile(write(framed(dict(sorted(found.items())), data)))
    assert list(file.tensors) == sorted(SOUND)
    assert {name: bytes(file.read(name)) for name in SOUND} == {name: stored for name, (_, _, stored) in SOUND.items()}


def test_an_empty_tensor_may_stand_anywhere_in_the_header(write):
    header = {
        "full": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
        "before": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
        "after": {"dtype": "F32", "shape": [2, 0], "data_offsets": [4, 4]},
    }
    assert len(SafetensorsFile(write(framed(header, b"abcd"))).tensors) == 3


def test_a_padded_header_and_a_file_without_tensors_are_sound(write):
    found, data = entries(SOUND)
    padded = json.dumps(found).encode() + b" " * 13
    assert len(SafetensorsFile(write(framed(padded, data))).tensors) == len(SOUND)
    assert SafetensorsFile(write(framed({}))).tensors == {}


@pytest.mark.parametrize("dtype", sorted(BITS_OF))
def test_every_dtype_of_the_format_is_counted_right(write, dtype):
    # Eight elements are whole bytes for every width; the reference implementation of the format agrees on the file.
    safetensors = pytest.importorskip("safetensors")
    stored = bytes(BITS_OF[dtype])
    path = write(document({"t": (dtype, (8,), stored)}))
    assert bytes(SafetensorsFile(path).read("t")) == stored
    assert safetensors.deserialize(path.read_bytes())[0][1]["shape"] == [8]


def test_elements_that_are_no_whole_bytes_are_refused(write):
    with pytest.raises(ModelError, match=r"tensor 't' of F4 \[3\] needs 12 bits, its data_offsets span 1 bytes"):
        SafetensorsFile(write(document({"t": ("F4", (3,), b"\0")})))


def test_views_are_read_only_and_outlive_the_file(write):
    path = write(document(SOUND))
    file = SafetensorsFile(path)
    view = file.read("two")
    file.release("two")
    file.close()
    path.unlink()
    assert view.readonly
    assert bytes(view) == SOUND["two"][2]


def test_reading_an_unknown_tensor_and_reading_after_closing_are_errors(write):
    file = SafetensorsFile(write(document(SOUND)))
    with pytest.raises(ModelError, match=r"file.safetensors: has no tensor 'three'"):
        file.read("three")
    file.close()
    with pytest.raises(ModelError, match=r"tensor 'one' is read after the file was closed"):
        file.read("one")


@pytest.mark.parametrize("metadata", [{"a": 1}, [], "pt", {"a": {}}])
def test_metadata_that_are_no_texts_are_refused(write, metadata):
    with pytest.raises(ModelError, match=r"__metadata__ in the header is no object of strings"):
        SafetensorsFile(write(framed({"__metadata__": metadata})))


@pytest.mark.parametrize("shape", [[True], [1.0], ["1"], None, 3, [1 << 63], [1] * 17, [[1]]])
def test_shapes_that_are_none_are_refused(write, shape):
    with pytest.raises(ModelError, match=r"tensor 't' has the impossible shape"):
        SafetensorsFile(write(framed({"t": {"dtype": "U8", "shape": shape, "data_offsets": [0, 1]}}, b"\0")))


@pytest.mark.parametrize("offsets", [[0], [0, 1, 1], [0, 1.0], [False, True], "01", None, {"0": 1}])
def test_offsets_that_are_none_are_refused(write, offsets):
    with pytest.raises(ModelError, match=r"tensor 't' has the data_offsets"):
        SafetensorsFile(write(framed({"t": {"dtype": "U8", "shape": [1], "data_offsets": offsets}}, b"\0")))


def test_a_missing_file_and_an_unreadable_one_are_errors(tmp_path):
    with pytest.raises(ModelError, match=r"absent.safetensors: cannot be read: No such file or directory"):
        SafetensorsFile(tmp_path / "absent.safetensors")
    with pytest.raises(ModelError, match=r"/dev/null: is no regular file"):
        SafetensorsFile(Path("/dev/null"))


def test_a_message_never_holds_a_long_name_from_the_file(write):
    with pytest.raises(ModelError) as refused:
        SafetensorsFile(write(framed({"x" * 100_000: {"dtype": "y" * 100_000, "shape": [], "data_offsets": [0, 0]}})))
    assert len(refused.value.message) < 1000


def test_the_library_of_the_format_and_this_reader_agree_on_real_files():
    safetensors = pytest.importorskip("safetensors")
    for path in sorted(DATA.glob("*/model.safetensors")):
        file = SafetensorsFile(path)
        expected = dict(safetensors.deserialize(path.read_bytes()))
        assert {name: (list(info.shape), bytes(file.read(name))) for name, info in file.tensors.items()} == {
            name: (entry["shape"], bytes(entry["data"])) for name, entry in expected.items()
        }


# ------------------------------------------------------------------------------------------ damage

GOOD = document(SOUND, {"format": "pt"})


def opened_or_refused(path, data):
    """Nothing but ``ModelError`` may come of any bytes; what opens can be read in full."""
    path.write_bytes(data)
    try:
        file = SafetensorsFile(path)
    except ModelError as error:
        assert "\n" not in error.message  # noqa: PT017 - opening may as well succeed
        return
    assert sum(file.read(name).nbytes for name in file.tensors) == file.nbytes


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "file.safetensors"


@settings(max_examples=300, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_refused_or_harmless(scratch, flips):
    data = bytearray(GOOD)
    for position, value in flips:
        data[position] = value
    opened_or_refused(scratch, bytes(data))


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, len(GOOD) - 1))
def test_a_file_that_was_cut_anywhere_is_refused(scratch, length):
    scratch.write_bytes(GOOD[:length])
    with pytest.raises(ModelError, match="is incomplete"):
        SafetensorsFile(scratch)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(sorted(BITS_OF)) | JSON_VALUES,
        "shape": st.lists(st.integers(-1, 1 << 64), max_size=3) | JSON_VALUES,
        "data_offsets": st.lists(st.integers(0, 50), min_size=2, max_size=2) | JSON_VALUES,
        "more": JSON_VALUES,
    },
)


@settings(max_examples=300, deadline=None)
@given(header=st.dictionaries(st.text(max_size=5), ENTRIES | JSON_VALUES, max_size=4), data=st.binary(max_size=50))
def test_headers_of_any_json_are_refused_or_read(scratch, header, data):
    opened_or_refused(scratch, framed(json.dumps(header).encode("utf-8", "surrogatepass"), data))


# ------------------------------------------------------------------------------------------ memory

MEASURE = """
import sys
from pathlib import Path
from lattice_core.errors import ModelError
from lattice_safetensors.container import SafetensorsFile
from lattice_safetensors.loader import SafetensorsLoader
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
try:
    if sys.argv[2] == "model":
        checkpoint = SafetensorsLoader(None).open(Path(sys.argv[1]))
        for name in checkpoint.tensors():
            data = checkpoint.read(name)
            sum(sum(part[:: 4096]) for part in (data.data, data.scales, data.biases))
    else:
        file = SafetensorsFile(Path(sys.argv[1]))
except ModelError as error:
    print("refused", error, file=sys.stderr)
print(peak() - before)
"""


def peak_growth(path, what="file"):
    """KiB that opening ``path`` adds to the peak of a fresh process; of a model all tensors are read in turn, too."""
    ran = subprocess.run([sys.executable, "-c", MEASURE, path, what], capture_output=True, text=True, check=True)
    return int(ran.stdout), ran.stderr


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")


@needs_proc
@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 1 << 40) + GOOD[8:],
        struct.pack("<Q", (1 << 64) - 1) + GOOD[8:],
        framed(b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
        framed(b"{" + b"[" * ((4 << 20) - 1)),
        framed(b'{"a":[' + b"[]," * 1_300_000 + b"1]}"),
        framed(b'{"' + b'\\"' * 2_000_000),
    ],
    ids=["length 2^40", "length 2^64", "10,000 deep", "4 million deep", "a million values", "one endless string"],
)
def test_a_header_that_is_a_bomb_costs_no_memory_and_no_time(write, data):
    grown, errors = peak_growth(write(data))
    assert errors.startswith("refused")
    assert grown < 24 << 10


@needs_proc
def test_a_large_file_costs_no_memory_until_it_is_read(tmp_path):
    path, size = tmp_path / "large.safetensors", 8 << 30
    head = framed({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    path.write_bytes(head)
    os.truncate(path, len(head) + size)
    grown, errors = peak_growth(path)
    assert (errors, grown < 8 << 10) == ("", True)


@needs_proc
def test_reading_all_weights_of_a_model_in_turn_holds_one_of_them(tmp_path):
    rows, words, groups, count = 2048, 1024, 256, 16
    shapes = {"weight": ("U32", words, 4), "scales": ("F16", groups, 2), "biases": ("F16", groups, 2)}
    header, size = {}, 0
    for number in range(count):
        for part, (dtype, width, itemsize) in shapes.items():
            end = size + rows * width * itemsize
            header[f"{number}.{part}"] = {"dtype": dtype, "shape": [rows, width], "data_offsets": [size, end]}
            size = end
    path = tmp_path / "model.safetensors"
    path.write_bytes(framed(header))
    os.truncate(path, path.stat().st_size + size)
    (tmp_path / "config.json").write_text('{"quantization": {"group_size": 32, "bits": 4}}')
    grown, errors = peak_growth(tmp_path, "model")
    assert errors == ""
    assert size // count // 2 < grown << 10 < 3 * size // count
