import json

import pytest

from lattice_conformance.scripted_adapter import (
    ScriptedAdapter,
    ScriptedAdapterError,
    ScriptedLoader,
    probe,
    probe_adapter,
)
from lattice_conformance.scripted_backend import ScriptedBackend, ScriptedCheckpoint
from lattice_core.errors import ModelError
from lattice_core.protocols import AdapterLoader, AdapterModel
from lattice_core.types import Limits, RowInput


def load(**settings):
    return ScriptedBackend(**settings).load(ScriptedCheckpoint(), Limits(), lambda done, total: None)


def first_token(model, state, adapter, text="[[say:]]"):
    """The token that follows an empty reply: that of the mark, where there is one."""
    return int(model.forward([RowInput(state, tuple(text.encode()), adapter=adapter)]).array.argmax())


def test_a_model_with_adapters_is_one_by_the_protocol_and_one_without_is_not():
    assert isinstance(load(), AdapterModel)
    assert not isinstance(load(adapters=False), AdapterModel)
    assert isinstance(ScriptedLoader(), AdapterLoader)


def test_the_mark_of_an_adapter_is_its_fingerprint():
    model = load()
    fr = model.load_adapter(ScriptedAdapter("fr", nbytes=70))
    plain, marked = model.new_state(), model.new_state()
    assert first_token(model, plain, None) != ord("<")
    assert first_token(model, marked, fr) == ord("<")
    assert model.adapter_bytes(fr) == 70


def test_a_state_that_changes_its_adapter_breaks_the_contract():
    model = load()
    fr, de = (model.load_adapter(ScriptedAdapter(name)) for name in ("fr", "de"))
    state = model.new_state()
    first_token(model, state, fr)
    for other in (de, None):
        with pytest.raises(ValueError, match=f"state {state} is fed with adapter {other} after {fr}"):
            first_token(model, state, other)
    [fork] = model.fork([state])
    with pytest.raises(ValueError, match="is fed with adapter"):
        first_token(model, fork, de)


def test_an_adapter_that_is_not_loaded_breaks_the_contract():
    model = load()
    fr = model.load_adapter(ScriptedAdapter("fr"))
    model.unload_adapter(fr)
    with pytest.raises(KeyError, match="adapter 1 is not loaded"):
        first_token(model, model.new_state(), fr)
    with pytest.raises(KeyError):
        model.unload_adapter(fr)


def test_a_reset_keeps_the_adapters():
    model = load()
    fr = model.load_adapter(ScriptedAdapter("fr"))
    first_token(model, model.new_state(), fr)
    model.reset()
    assert first_token(model, model.new_state(), fr) == ord("<")


def test_an_adapter_that_changes_a_module_is_refused():
    with pytest.raises(ModelError, match=r"changes layers\.0\.mlp, which the scripted model does not have"):
        load().load_adapter(ScriptedAdapter("fr", module="layers.0.mlp"))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", ModelError, "is not JSON"),
        ("[]", ModelError, "has no fingerprint"),
        ('{"fingerprint": 1}', ModelError, "has no fingerprint"),
        ('{"fingerprint": "x", "fail": "open"}', ScriptedAdapterError, r"x\.scripted"),
    ],
)
def test_a_file_that_is_none_says_why(tmp_path, text, error, message):
    path = tmp_path / "x.scripted"
    path.write_text(text)
    with pytest.raises(error, match=message):
        ScriptedLoader().open_adapter(path)


def test_files_are_known_by_their_ending_and_are_no_models(tmp_path):
    path = tmp_path / "x.scripted"
    path.write_text(json.dumps({"fingerprint": "x", "nbytes": 5}))
    assert probe_adapter(path) is not None
    assert probe_adapter(tmp_path) is None
    assert probe(path) is None
    opened = ScriptedLoader().open_adapter(path)
    assert (opened.fingerprint, opened.nbytes, opened.updates()) == ("x", 5, {})
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        ScriptedLoader().open_adapter(tmp_path / "y.scripted")
    with pytest.raises(ModelError, match="is an adapter, no model"):
        ScriptedLoader().open(path)
