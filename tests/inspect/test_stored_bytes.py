import pytest

from lattice_core.types import AffineQuantization, TensorSpec
from lattice_inspect.stored_bytes import bits_of, bytes_of, kind_of, schemes_of, summary_by_kind


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("F32", 32),
        ("BF16", 16),
        ("I64", 64),
        ("U8", 8),
        ("BOOL", 8),
        ("F8_E4M3", 8),
        ("F8_E5M2FNUZ", 8),
        ("F6_E3M2", 6),
        ("F4", 4),
        ("C64", 64),
        ("MYSTERY", None),
    ],
)
def test_the_size_of_an_element_is_known_from_the_dtype(dtype, bits):
    assert bits_of(dtype) == bits


def test_a_dense_tensor_takes_its_elements():
    assert bytes_of(TensorSpec("a", "BF16", (3, 5))) == 30
    assert bytes_of(TensorSpec("a", "F4", (3,))) == 2
    assert bytes_of(TensorSpec("a", "F32", ())) == 4
    assert bytes_of(TensorSpec("a", "F32", (0, 5))) == 0
    assert bytes_of(TensorSpec("a", "MYSTERY", (3, 5))) is None


def test_a_packed_tensor_takes_words_scales_and_biases():
    # Two rows of 64: 8 words each at 4 bits, two groups each with a scale and a bias of two bytes.
    spec = TensorSpec("a", "U32", (2, 64), AffineQuantization(4, 32, "F16"))
    assert bytes_of(spec) == 2 * 8 * 4 + 2 * 2 * (2 + 2)
    assert kind_of(spec) == "4-bit, groups of 32, F16 scales"


def test_a_row_of_words_is_filled_up():
    # 32 elements of 3 bits are 96 bits, which are three whole words.
    assert bytes_of(TensorSpec("a", "U32", (32,), AffineQuantization(3, 32, "F32"))) == 12 + 4 + 4


def test_kinds_are_counted_with_the_largest_first():
    specs = [TensorSpec("a", "F32", (2,)), TensorSpec("b", "BF16", (100,)), TensorSpec("c", "F32", (3,))]
    assert summary_by_kind(specs) == [
        {"kind": "BF16", "count": 1, "elements": 100, "bytes": 200},
        {"kind": "F32", "count": 2, "elements": 5, "bytes": 20},
    ]
    assert summary_by_kind([TensorSpec("a", "MYSTERY", (2,))])[0]["bytes"] is None


def test_schemes_are_counted():
    four, eight = AffineQuantization(4, 32), AffineQuantization(8, 64, "BF16")
    specs = {name: TensorSpec(name, "U32", (64,), scheme) for name, scheme in (("a", four), ("b", eight), ("c", four))}
    specs["d"] = TensorSpec("d", "F32", (1,))
    assert schemes_of(specs) == [
        {"bits": 4, "group_size": 32, "scale_dtype": "F16", "count": 2},
        {"bits": 8, "group_size": 64, "scale_dtype": "BF16", "count": 1},
    ]
