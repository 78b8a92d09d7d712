"""Fixtures of the q4 tests."""

import pytest

from lattice_core.descriptors import Settings
from lattice_q4.loader import Q4Loader


@pytest.fixture
def loader():
    return Q4Loader(Settings())
