"""What a misspelt name is taken for."""

import pytest

from lattice_core.nearest import nearest


@pytest.mark.parametrize(
    ("name", "found"), [("--prot", "--port"), ("--promt", "--prompt"), ("--PORT", "--port"), ("--zzz", None)]
)
def test_swapped_letters_rank_first_and_nothing_far_away_is_offered(name, found):
    assert nearest(name, ["--prompt", "--port", "--host"]) == found
