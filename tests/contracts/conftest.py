"""Every contract that could depend on it holds with and without a step launched ahead of the one that is read."""

import pytest


@pytest.fixture(params=[False, True], ids=["step by step", "one step ahead"])
def lookahead(request):
    return request.param
