import sys

import pytest

from lattice_core.descriptors import BackendSpec, ChatFormatSpec, LoaderSpec, SamplerSpec
from lattice_core.errors import ModelError, PluginError, RequestError
from lattice_core.registry import (
    Failure,
    Registration,
    Registry,
    default_backend,
    is_importable,
    make,
    select_chat_format,
    select_loader,
)
from lattice_core.types import Match


def registered(kind, spec, *, distribution="dist", first_party=False):
    return Registration(
        kind=kind, spec=spec, plugin=f"{distribution}-plugin", distribution=distribution, version="1.2", first_party=first_party
    )


def sampler(name, factory=dict, **more):
    return registered("sampler", SamplerSpec(name=name, summary="s", factory=factory, **more))


def loader(name, probe, *, distribution="dist", **more):
    spec = LoaderSpec(name=name, summary="s", factory=dict, probe=probe, looks_for=f"*.{name}", **more)
    return registered("loader", spec, distribution=distribution)


def test_an_unknown_name_lists_the_choices_the_nearest_and_what_failed():
    registry = Registry([sampler("greedy"), sampler("default")], [Failure("odd", "odd-dist", "ImportError: x")], ["quiet"])
    with pytest.raises(PluginError) as caught:
        registry.find("sampler", "gredy")
    assert str(caught.value) == (
        "unknown sampler 'gredy' (did you mean greedy?); choose from: default, greedy;"
        " plugins that failed to load: odd (ImportError: x); plugins left out: quiet"
    )


def test_names_of_other_kinds_are_not_found():
    with pytest.raises(PluginError, match="unknown backend 'greedy'; choose from: none"):
        Registry([sampler("greedy")]).find("backend", "greedy")


def test_a_missing_requirement_is_named_with_the_way_to_install_it():
    registry = Registry([sampler("fast", requires=("json", "no_such_module"), install="pip install 'dist[fast]'")])
    with pytest.raises(PluginError) as caught:
        registry.require("sampler", "fast")
    assert str(caught.value) == "sampler 'fast' is unavailable: needs no_such_module; pip install 'dist[fast]'"


def test_requirements_are_probed_without_importing_anything(tmp_path, monkeypatch):
    package = tmp_path / "probed_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "inner.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_importable("probed_package")
    assert is_importable("probed_package.inner")
    assert not is_importable("probed_package.missing")
    assert not is_importable("probed_package.inner.deeper")
    assert "probed_package" not in sys.modules


# ------------------------------------------------------------------------------------------------ factories


def test_an_error_of_a_factory_names_plugin_version_part_and_cause():
    def factory(settings):
        raise ValueError("no device")

    with pytest.raises(PluginError) as caught:
        make(sampler("odd", factory), None)
    message = str(caught.value)
    assert message.startswith("sampler 'odd' (plugin dist-plugin, dist 1.2): factory ")
    assert "failed: ValueError: no device (test_registry.py:" in message
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_factory_that_cannot_be_imported_names_its_path():
    with pytest.raises(PluginError, match="factory json:no_such_name failed: AttributeError"):
        make(sampler("odd", "json:no_such_name"), None)


def test_a_factory_may_not_end_the_process():
    with pytest.raises(PluginError, match="failed: SystemExit: 7"):
        make(sampler("odd", lambda _settings: sys.exit(7)), None)


def test_errors_in_the_words_of_lattice_pass_as_they_are():
    def factory(settings):
        raise RequestError("as it is")

    with pytest.raises(RequestError, match=r"^as it is$"):
        make(sampler("odd", factory), None)


# ------------------------------------------------------------------------------------------------ loaders


def test_the_loader_that_matches_best_is_chosen(tmp_path):
    parts = [
        loader("low", lambda _path: Match(10, "x")),
        loader("high", lambda _path: Match(50, "x")),
        loader("none", lambda _path: None),
    ]
    assert select_loader(Registry(parts), tmp_path).name == "high"


def test_equal_matches_are_an_error_that_names_both_and_the_way_out(tmp_path):
    parts = [
        loader("same", lambda _path: Match(50, "a.x"), distribution="one"),
        loader("same", lambda _path: Match(50, "b.x"), distribution="two"),
    ]
    with pytest.raises(PluginError) as caught:
        select_loader(Registry(parts), tmp_path)
    message = str(caught.value)
    assert "loader 'same' (plugin one-plugin, one 1.2) (a.x) and loader 'same' (plugin two-plugin, two 1.2) (b.x)" in message
    assert "say --loader one/same or --loader two/same" in message


def test_a_path_that_no_loader_knows_says_what_each_looked_for(tmp_path):
    parts = [loader("a", lambda _path: None), loader("b", lambda _path: None)]
    with pytest.raises(ModelError, match=r"holds no model that a loader knows \(looked for: a: \*\.a; b: \*\.b\)"):
        select_loader(Registry(parts), tmp_path)


def test_a_missing_path_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match="model directory not found: "):
        select_loader(Registry([]), tmp_path / "absent")


def test_a_broken_probe_keeps_no_other_loader_from_the_model(tmp_path, caplog):
    def broken(_path):
        raise OSError("unreadable")

    parts = [loader("bad", broken), loader("odd", lambda _path: "yes"), loader("good", lambda _path: Match(1, "x"))]
    assert select_loader(Registry(parts), tmp_path).name == "good"
    with pytest.raises(ModelError) as caught:
        select_loader(Registry(parts[:2]), tmp_path)
    assert "OSError: unreadable" in str(caught.value)
    assert "probe returned a str, not a Match or None" in str(caught.value)


def test_the_best_loader_must_be_available(tmp_path):
    parts = [
        loader("best", lambda _path: Match(90, "x"), requires=("no_such_module",)),
        loader("other", lambda _path: Match(10, "x")),
    ]
    with pytest.raises(PluginError, match="loader 'best' is unavailable: needs no_such_module"):
        select_loader(Registry(parts), tmp_path)


# ------------------------------------------------------------------------------------------------ chat formats, backends


def chat_format(name, probe):
    return registered("chat-format", ChatFormatSpec(name=name, summary="s", factory=dict, probe=probe))


def test_the_chat_format_with_the_highest_score_is_chosen():
    parts = [chat_format("a", lambda _t, _v: 1), chat_format("b", lambda t, _v: None if t is None else 100)]
    assert select_chat_format(Registry(parts), None, None).name == "a"
    assert select_chat_format(Registry(parts), "{{ x }}", None).name == "b"


def test_chat_formats_that_fit_equally_well_are_an_error_that_names_both():
    parts = [chat_format("a", lambda _t, _v: 5), chat_format("b", lambda _t, _v: 5)]
    with pytest.raises(PluginError, match="say --chat-format a or --chat-format b"):
        select_chat_format(Registry(parts), None, None)


def test_where_no_chat_format_fits_the_error_lists_them(caplog):
    parts = [
        chat_format("a", lambda _t, _v: None),
        chat_format("b", lambda _t, _v: 1 / 0),
        chat_format("c", lambda _t, _v: "x"),
    ]
    with pytest.raises(PluginError, match=r"no chat format fits this model \(a, b, c\)"):
        select_chat_format(Registry(parts), None, None)
    assert "ZeroDivisionError" in caplog.text
    assert "probe returned a str, not an integer or None" in caplog.text


def backend(name, *, consumes="tensors", requires=(), first_party=False, install=""):
    spec = BackendSpec(name=name, summary="s", factory=dict, consumes=consumes, requires=requires, install=install)
    return registered("backend", spec, first_party=first_party)


def test_the_first_party_backend_is_the_default_where_it_is_available():
    parts = [backend("fake", consumes="nothing"), backend("stranger"), backend("own", first_party=True)]
    assert default_backend(Registry(parts)).name == "own"


def test_a_stranger_is_the_default_backend_where_it_is_the_only_one_available():
    parts = [backend("own", first_party=True, requires=("no_such_module",)), backend("stranger")]
    assert default_backend(Registry(parts)).name == "stranger"


def test_two_strangers_are_no_default():
    with pytest.raises(PluginError, match="say --backend a or --backend b"):
        default_backend(Registry([backend("a"), backend("b")]))


def test_without_an_available_backend_the_error_says_what_each_needs():
    parts = [backend("own", requires=("no_such_module",), install="pip install it"), backend("fake", consumes="nothing")]
    with pytest.raises(PluginError, match="no backend is available: own is unavailable: needs no_such_module; pip install it"):
        default_backend(Registry(parts))
