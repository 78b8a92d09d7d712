import math

import pytest

from lattice_core.errors import RequestError
from lattice_core.types import SamplingParams
from lattice_samplers.default_sampler import DefaultSampler
from lattice_samplers.row_settings import resolve_settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", -1.0),
        ("top_p", 1.5),
        ("top_p", math.nan),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.1),
        ("repetition_penalty", math.nan),
        ("repetition_penalty", math.inf),
        ("repetition_penalty", 1e-300),
        ("repetition_penalty", 1e300),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name_and_value(field, value):
    with pytest.raises(RequestError) as caught:
        DefaultSampler().new_state(SamplingParams(**{field: value}), (), 10)
    assert caught.value.param == field
    assert str(value) in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(("prompt", "wrong"), [((1, 10), 10), ((-1, 3), -1)])
def test_a_prompt_token_outside_the_vocabulary_is_refused(prompt, wrong):
    with pytest.raises(RequestError, match=f"prompt token {wrong} is outside the vocabulary 0..9"):
        DefaultSampler().new_state(SamplingParams(), prompt, 10)


@pytest.mark.parametrize("top_k", [0, 10, 11, 10**9])
def test_top_k_off_or_beyond_the_vocabulary_is_the_whole_vocabulary(top_k):
    assert resolve_settings(SamplingParams(top_k=top_k), (), 10).top_k == 10


@pytest.mark.parametrize(
    ("temperature", "greedy"), [(0.0, True), (2.9e-35, True), (1e-320, True), (2.95e-35, False), (1.0, False)]
)
def test_a_temperature_whose_reciprocal_leaves_float32_is_greedy(temperature, greedy):
    assert resolve_settings(SamplingParams(temperature=temperature), (), 10).greedy is greedy


def test_top_k_of_one_is_greedy():
    assert resolve_settings(SamplingParams(top_k=1), (), 10).greedy
