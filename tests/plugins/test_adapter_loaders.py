"""Which loader opens an adapter."""

import pytest

from lattice_core.descriptors import LoaderSpec
from lattice_core.errors import AdapterError, PluginError
from lattice_core.registry import Registration, Registry, select_adapter_loader
from lattice_core.types import Match


def loader(name, adapter_probe, **more):
    spec = LoaderSpec(
        name=name,
        summary="s",
        factory=dict,
        probe=lambda _path: Match(99, "a model"),
        looks_for="",
        adapter_probe=adapter_probe,
    )
    return Registration(kind="loader", spec=spec, plugin=f"{name}-plugin", distribution="dist", version="1.2", **more)


def matching(score):
    return lambda _path: Match(score, f"score {score}")


def broken(_path):
    raise ValueError("not today")


def test_the_best_match_opens_it_and_loaders_of_models_alone_are_not_asked(tmp_path):
    registry = Registry(
        [loader("models", None), loader("low", matching(1)), loader("high", matching(5)), loader("no", lambda _path: None)]
    )
    assert select_adapter_loader(registry, tmp_path).name == "high"


def test_equal_matches_name_both(tmp_path):
    with pytest.raises(PluginError, match=r"two loaders match equally well: loader 'a' .* and loader 'b' .*-p no:NAME"):
        select_adapter_loader(Registry([loader("a", matching(5)), loader("b", matching(5))]), tmp_path)


def test_what_no_loader_knows_names_those_that_were_asked_and_what_broke(tmp_path, caplog):
    parts = [loader("models", None), loader("a", lambda _path: None), loader("b", broken), loader("c", lambda _path: 7)]
    with pytest.raises(AdapterError) as caught:
        select_adapter_loader(Registry(parts), tmp_path)
    assert "holds no adapter that a loader knows (asked: a, b, c); broken: loader 'b'" in caught.value.message
    assert "adapter_probe" in caught.value.message
    assert "returned a int, not a Match or None" in caught.value.message
    assert "not today" in caplog.text


def test_without_any_loader_of_adapters_that_is_said(tmp_path):
    with pytest.raises(AdapterError, match="asked: no loader of adapters is installed"):
        select_adapter_loader(Registry([loader("models", None)]), tmp_path)


@pytest.mark.parametrize("name", ["absent", "x" * 5000])
def test_a_path_that_is_not_there_says_so(tmp_path, name):
    with pytest.raises(AdapterError, match=r"adapter not found: .*; check the path"):
        select_adapter_loader(Registry([]), tmp_path / name)
